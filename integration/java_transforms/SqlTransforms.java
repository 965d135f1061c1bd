import java.util.Map;
import org.apache.beam.sdk.expansion.ExternalTransformRegistrar;
import org.apache.beam.sdk.extensions.sql.SqlTransform;
import org.apache.beam.sdk.transforms.ExternalTransformBuilder;
import org.apache.beam.sdk.transforms.PTransform;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.PInput;
import org.apache.beam.sdk.values.Row;
import org.checkerframework.checker.nullness.qual.Nullable;

/** Offers SqlTransform to Python, as beam-sdks-java-extensions-sql-expansion-service does. */
public final class SqlTransforms implements ExternalTransformRegistrar {
  @Override
  public Map<String, ExternalTransformBuilder<?, ?, ?>> knownBuilderInstances() {
    return Map.of("beam:external:java:sql:v1", new Builder());
  }

  public static final class Configuration {
    private String query;

    public void setQuery(String query) {
      this.query = query;
    }

    public void setDialect(@Nullable String dialect) {
      if (dialect != null) {
        throw new IllegalArgumentException("only the dialect of Calcite is offered");
      }
    }

    public void setDdl(@Nullable String ddl) {
      if (ddl != null) {
        throw new IllegalArgumentException("statements before the query are not offered");
      }
    }
  }

  private static final class Builder
      implements ExternalTransformBuilder<Configuration, PInput, PCollection<Row>> {
    @Override
    public PTransform<PInput, PCollection<Row>> buildExternal(Configuration configuration) {
      return SqlTransform.query(configuration.query);
    }
  }
}
