// Counts words on a job server; its code runs in this process.
//
//     npm install
//     node word_count.js HOST:PORT COUNT
//
// The program fails unless the first word has been counted COUNT times.
const beam = require("apache-beam");
const { countPerElement } = require("apache-beam/transforms/group_and_combine");
const { assertDeepEqual } = require("apache-beam/testing/assert");
const { PortableRunner } = require("apache-beam/runners/portable_runner/runner");

async function main(endpoint, count) {
  const runner = new PortableRunner({ jobEndpoint: endpoint, environmentType: "LOOPBACK" });
  await runner.run((root) => {
    root
      .apply(beam.create(["a b a", "b a"]))
      .flatMap(function* (line) {
        yield* line.split(" ");
      })
      .apply(countPerElement())
      .apply(assertDeepEqual([{ element: "a", count: count }, { element: "b", count: 2 }]));
  });
}

main(process.argv[2], Number(process.argv[3])).then(
  () => process.exit(0),
  (error) => {
    console.error(String(error));
    process.exit(1);
  },
);
