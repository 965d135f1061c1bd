"""Spark tables in and out: a query, Beam DataFrames over its rows, and one write.

    python examples/spark_tables.py

Writes a small table of sales to a temporary folder with Spark, then reads it twice: its files, with
a filter that is pushed down to the Parquet reader, and a SQL query.
"""

import argparse
import tempfile
from pathlib import Path

import apache_beam as beam
from apache_beam.dataframe.convert import to_dataframe, to_pcollection
from apache_beam.options.pipeline_options import PipelineOptions
from pyspark.sql import SparkSession

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark

SALES = """
SELECT id, DATE'2026-01-01' + CAST(id % 90 AS INT) AS day, concat('shop ', id % 7) AS shop,
       CAST(id % 100 AS DOUBLE) / 4 AS price
FROM range(100000)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--folder", type=Path, help="of the tables. Default: a temporary one")
    arguments, flags = parser.parse_known_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="spark-tables-"))
    spark = SparkSession.builder.getOrCreate()
    spark.sql(SALES).write.mode("overwrite").parquet(str(folder / "sales"))

    with beam.Pipeline(runner=SparkPortableRunner(spark), options=PipelineOptions(flags)) as p:
        # Beam DataFrames need the schema, which is looked up when the pipeline is built.
        sales = p | "March" >> ReadFromSpark(
            path=str(folder / "sales"), columns=["shop", "price"], where="day >= DATE'2026-03-01'"
        )
        frame = to_dataframe(sales)
        totals = to_pcollection(frame.groupby("shop").sum(), include_indexes=True)
        totals | "Totals" >> beam.Map(lambda row: print(row.shop, round(row.price, 2)))

        # A SQL query of the session; its rows pass through Python, and are written to a table.
        (
            p
            | "Query"
            >> ReadFromSpark(
                query=f"SELECT shop, max(price) AS most FROM parquet.`{folder}/sales` GROUP BY shop"
            )
            | beam.Map(
                lambda row: beam.Row(shop=row.shop.upper(), most=row.most)
            ).with_output_types(
                beam.typehints.row_type.RowTypeConstraint.from_fields(
                    [("shop", str), ("most", float)]
                )
            )
            | WriteToSpark(path=str(folder / "most"), mode="overwrite")
            | "Written" >> beam.Map(lambda result: print(result.rows, "rows in", result.target))
        )


if __name__ == "__main__":
    main()
