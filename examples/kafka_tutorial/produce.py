"""Creates the topics of docs/kafka_tutorial.md, and writes orders to one of them, 50 per second.

python examples/kafka_tutorial/produce.py 6000
"""

import json
import os
import random
import sys
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

SERVERS = {"bootstrap.servers": os.environ.get("KAFKA_SERVERS", "localhost:9092")}
COUNTRIES = ["DE", "FR", "IT", "PL", "US"]


def create(*topics: str) -> None:
    """Create topics with two partitions, unless they exist."""
    admin = AdminClient(SERVERS)
    missing = set(topics) - set(admin.list_topics(timeout=30).topics)
    for created in admin.create_topics([NewTopic(each, 2, 1) for each in missing]).values():
        created.result()


def main() -> None:
    create("orders", "counts")
    producer = Producer(SERVERS)
    for number in range(int(sys.argv[1])):
        order = {"id": number, "country": random.choice(COUNTRIES)}
        producer.produce("orders", json.dumps(order))
        producer.poll(0)
        time.sleep(0.02)
    producer.flush()


if __name__ == "__main__":
    main()
