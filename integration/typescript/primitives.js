// Runs the SDK's own tests of primitives on the job server at $JOB_ENDPOINT; for mocha.
require("apache-beam");
const { PortableRunner } = require("apache-beam/runners/portable_runner/runner");
const { suite } = require("./node_modules/apache-beam/dist/test/primitives_test");

const options = { jobEndpoint: process.env.JOB_ENDPOINT, environmentType: "LOOPBACK" };
describe("on the job server", () => suite(new PortableRunner(options)));
