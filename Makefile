# Every target sets up what it needs: a virtual environment in .venv, with this
# checkout installed in it. `make PYTHON=python3.12 test` takes another Python.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
PYTEST = $(BIN)/python -m pytest
# Files side by side in two processes: each has its own Spark, with two slots.
SIDE_BY_SIDE = --numprocesses 2 --dist loadfile --no-loadscope-reorder
# These wait for silence and limits more than they compute.
IN_THREES = --numprocesses 3 --dist loadfile --no-loadscope-reorder
# Rare tests and those of clusters wait for limits that pass, and for executors that come and go.
WAITING = --numprocesses 3 --dist loadfile
SPARK_CLASSES = $(VENV)/spark-classes.jsa
# Tests start some hundred Python processes: they compile each module once.
unexport PYTHONDONTWRITEBYTECODE
VENV_35 = .venv35
READY_35 = $(VENV_35)/.ready
VENV_TABLES = .venv-tables
READY_TABLES = $(VENV_TABLES)/.ready
VENV_CONFORMANCE = .venv-conformance
READY_CONFORMANCE = $(VENV_CONFORMANCE)/.ready

.DEFAULT_GOAL := help
# All targets with a description, as `make help` shows them, and some that only others need.
.PHONY: $(shell awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / {print $$1}' $(MAKEFILE_LIST)) java-tools postgresql-tools yarn-tools yarn-test-3.5 kubernetes-tools other-tests quick-on-spark quick-in-process

help: ## Show this help
	@echo "make TARGET, where TARGET is one of:"
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / {printf "  %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Python compiles the modules that are imported, when they are: a tenth of what is installed.
$(READY): setup.cfg pyproject.toml build_support/backend.py beam_spark_runner/import_hook.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	touch $@

wordcount: $(READY) ## Run Beam's own word count on Spark, over Beam's own sources (10 MB)
	$(BIN)/python examples/wordcount.py

# Tests start some dozens of short-lived JVMs. With parsed classes to map, a compiler that hurries
# and one thread that collects garbage, the first pipeline of each takes a third of the CPU time.
$(SPARK_CLASSES): $(READY) build_support/archive_spark_classes.py
	$(BIN)/python build_support/archive_spark_classes.py $(abspath $@)
test harness-tests spark-tests random-pipelines random-streams integration integration-kerberos memory kills yarn-test conformance-java conformance-third-party other-tests quick-on-spark: export SPARK_SUBMIT_OPTS = \
	-XX:SharedArchiveFile=$(abspath $(SPARK_CLASSES)) -Xlog:disable \
	-XX:TieredStopAtLevel=1 -XX:+UseSerialGC

# The parser of diagrams in the documentation. Without Node.js, their test is skipped.
MERMAID = $(VENV)/mermaid/.ready
$(MERMAID): $(READY) build_support/mermaid/package.json build_support/mermaid/parse.mjs
	mkdir -p $(@D)
	cp build_support/mermaid/* $(@D)
	if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(@D); fi
	touch $@

# Two at a time, in this order: until the end, some tests compute while others wait.
PARTS_OF_TEST = lint other-tests harness-tests pipeline-tests quick-on-spark quick-in-process
test: $(READY) ## Lint, type check, all tests except rare ones and integration, Beam's quick suites
	$(MAKE) --jobs 2 --output-sync=target $(PARTS_OF_TEST)

# Most of them compute: a process for each core.
other-tests: $(READY) $(SPARK_CLASSES) $(MERMAID)
	$(PYTEST) $(SIDE_BY_SIDE) tests --ignore=tests/harness -m 'not rare and not in_process'

diagrams: $(READY) ## Write the diagrams of the documentation that come from code
	$(BIN)/python -m tests.diagrams

# A fork of termtosvg that is maintained; it emulates the terminal and needs nothing of the program.
TERMTOSVG = .venv-recording/bin/termtosvg
$(TERMTOSVG): Makefile
	$(PYTHON) -m venv .venv-recording
	.venv-recording/bin/python -m pip install --quiet 'termtosvg-ng==1.4.1'
	touch $@

recording: $(READY) $(TERMTOSVG) ## In a terminal: record the word count that README.md shows, as an animated SVG
	@test -t 0 || { echo "make recording needs a terminal"; exit 1; }
	PATH=$(abspath $(BIN)):$$PATH $(TERMTOSVG) docs/images/word_count.svg --screen-geometry 80x13 \
		--template window_frame --command 'sh build_support/recorded.sh'

# In separate processes, like those of harnesses: they serve gRPC, too.
pipeline-tests: $(READY) ## Tests of pipelines, in their own process without Spark
	$(PYTEST) $(IN_THREES) tests/pipelines -m 'in_process and not rare'

# In a separate process: one that has had gRPC servers cannot start a JVM for sure, since
# that forks.
harness-tests: $(READY) ## Tests of the Fn API services and of SDK harnesses, except rare ones
	$(PYTEST) $(IN_THREES) tests/harness -m 'not rare'

lint: $(READY) ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## Let ruff fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: $(READY) ## Tests without Spark
	$(PYTEST) tests -m 'not spark and not slow and not connect and not cluster'

spark-tests: $(READY) $(SPARK_CLASSES) ## Tests on a local Spark, those of pipelines among them
	$(PYTEST) tests --on-spark -m 'spark or connect or cluster or in_process'

# The oldest protobuf that Beam supports reads what this compiler writes.
PROTOC = .venv-protoc/bin/python -m grpc_tools.protoc
.venv-protoc/.ready: Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet 'grpcio-tools==1.62.*' 'setuptools<80'
	touch $@

protos: .venv-protoc/.ready ## Generate Python code from protos/
	$(PROTOC) -Iprotos --python_out=beam_spark_runner/_generated --pyi_out=beam_spark_runner/_generated protos/*.proto

install-tests: $(READY) ## Tests of a plain and an editable install
	$(PYTEST) tests/install

# Tools of releases, apart from what they test.
VENV_PACKAGE = .venv-package
READY_PACKAGE = $(VENV_PACKAGE)/.ready
$(READY_PACKAGE): Makefile
	$(PYTHON) -m venv $(VENV_PACKAGE)
	$(VENV_PACKAGE)/bin/python -m pip install --quiet build twine check-wheel-contents pip-licenses cyclonedx-bom
	touch $@

ACTIONLINT = $(VENV_PACKAGE)/bin/actionlint
$(ACTIONLINT): $(READY_PACKAGE)
	@command -v go >/dev/null || { echo "make package-test needs Go, to build actionlint"; exit 1; }
	GOBIN=$(abspath $(@D)) go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

package: $(READY_PACKAGE) ## Build the wheel and the source distribution of a release, in dist
	rm -rf dist build/lib build/bdist.*
	$(VENV_PACKAGE)/bin/python -m build
	$(VENV_PACKAGE)/bin/twine check --strict dist/beam_spark_runner-*
	$(VENV_PACKAGE)/bin/check-wheel-contents dist

# Java is looked for before anything is built.
package-test: ## Build the distributions; install them in bare environments, with each extra; licences, workflows
	@command -v java >/dev/null || { echo "make package-test needs Java"; exit 1; }
	$(MAKE) $(ACTIONLINT) $(READY) package
	$(ACTIONLINT)
	$(PYTEST) $(PACKAGE)

# What a user has who installs everything that needs no compiler.
EXTRAS = connect,kafka,lineage,page,redis,s3
VENV_EXTRAS = .venv-extras
$(VENV_EXTRAS)/.ready: setup.cfg build_support/backend.py
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --no-compile '.[$(EXTRAS)]'
	touch $@

licences: $(READY_PACKAGE) $(VENV_EXTRAS)/.ready ## Write docs/licences.md: the licences of all dependencies
	$(VENV_PACKAGE)/bin/python -m integration.licences $(VENV_EXTRAS)/bin/python $(EXTRAS)

sbom: $(READY_PACKAGE) $(VENV_EXTRAS)/.ready ## Write dist/sbom.cdx.json: all dependencies with their versions, in CycloneDX's format
	mkdir -p dist
	$(VENV_PACKAGE)/bin/cyclonedx-py environment --output-file dist/sbom.cdx.json $(VENV_EXTRAS)/bin/python

versions-test: $(READY) ## The supported versions of Python, Java, Spark and Beam, in separate environments; writes the table in docs/features.md. VERSIONS="spark-4.1": only these
	$(BIN)/python -m integration.versions $(VERSIONS)

# With each minor version of Beam that is supported; see docs/releasing.md.
release-files: $(READY) ## Write what this version stores to tests/pipelines/releases, for later versions
	$(BIN)/python -m tests.pipelines.stored_releases
	$(BIN)/python -m integration.versions --only-make beam-2.76
	.venv-versions/beam-2.76/bin/python -m tests.pipelines.stored_releases

READY_INTEGRATION = $(VENV)/.ready-integration
$(READY_INTEGRATION): $(READY)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[integration]'
	touch $@

# The jars of a broker, those of a namenode and a datanode, and those of an expansion service.
KAFKA = $(VENV)/kafka/.ready
HDFS = $(VENV)/hdfs/.ready
JAVA_TRANSFORMS = $(VENV)/java_transforms/.ready
$(KAFKA) $(HDFS) $(JAVA_TRANSFORMS): $(VENV)/%/.ready: integration/%/pom.xml
	mvn --quiet --batch-mode --file $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(abspath $(@D))
	touch $@

BROKER = java -Xmx512m -cp '$(dir $(KAFKA))*'
kafka-broker: $(KAFKA) ## A Kafka broker at localhost:9092 until Ctrl-C, for docs/kafka_tutorial.md
	@$(BROKER) kafka.tools.StorageTool format --ignore-formatted --cluster-id tutorial --config integration/kafka/broker.properties
	@echo "The broker starts at localhost:9092. Ctrl-C ends it."
	@$(BROKER) kafka.Kafka integration/kafka/broker.properties

AZURITE = $(VENV)/azurite/.ready
$(AZURITE): integration/azurite/package.json
	mkdir -p $(@D)
	cp $< $(@D)
	npm install --silent --no-audit --no-fund --prefix $(@D)
	touch $@

# The peer of benchmarks.kafka, in a separate environment: the connector of the newest Spark is
# often not on Maven Central yet. PySpark has what is left out here.
VENV_STRUCTURED = .venv-structured
SPARK_OF_STRUCTURED = 4.2.0
CONNECTOR = spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2
$(VENV_STRUCTURED)/.ready: benchmarks/kafka/pom.xml Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet 'pyspark==$(SPARK_OF_STRUCTURED)'
	rm -rf $(@D)/jars
	mvn --quiet --batch-mode --file $< dependency:copy-dependencies -Dpyspark.version=$(SPARK_OF_STRUCTURED) \
		-DincludeArtifactIds=$(CONNECTOR) -DoutputDirectory=$(abspath $(@D))/jars
	touch $@

bench-kafka: $(READY_INTEGRATION) $(KAFKA) $(VENV_STRUCTURED)/.ready ## Kafka to Kafka, compared with Structured Streaming
	$(BIN)/python -m benchmarks.kafka

LAKES = integration/test_lakes.py integration/test_lakes_elsewhere.py
PACKAGE = integration/test_package.py
THIRD_PARTY = integration/third_party
DATABASES = integration/test_streams_into_databases.py
JAVA = $(addprefix integration/test_java_,transforms.py examples.py)
TABLES = $(addprefix integration/test_,tables_on_a_cluster.py tables_on_connect.py partitions_on_a_cluster.py)
integration: $(READY_INTEGRATION) $(SPARK_CLASSES) $(KAFKA) $(HDFS) $(AZURITE) integration-3.5 ## Rare cases, clusters, Spark Connect, killed processes, Kafka, HDFS, Azurite, Spark 3.5
	$(PYTEST) $(IN_THREES) tests/harness -m rare
	ALL_EXAMPLES=1 $(PYTEST) $(WAITING) tests/pipelines -m 'in_process and (rare or hypothesis)'
	ALL_EXAMPLES=1 $(PYTEST) $(WAITING) tests --ignore=tests/harness -m 'not in_process and (rare or (hypothesis and not slow))'
	$(PYTEST) $(WAITING) integration $(addprefix --ignore=,integration/test_compose.py integration/test_memory.py $(KERBEROS) $(TABLES) $(DATABASES) $(PACKAGE) $(PAGE) $(YARN) $(KUBERNETES) $(THIRD_PARTY) $(JAVA))

# A KDC, and the headers with which pip compiles gssapi, where Debian's packages can be installed.
KDC = /usr/sbin/krb5kdc
$(KDC):
	apt-get update --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends \
		krb5-kdc krb5-admin-server krb5-user libkrb5-dev

READY_KERBEROS = $(VENV)/.ready-kerberos
$(READY_KERBEROS): $(READY) | $(KDC)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[kerberos]'
	touch $@

KERBEROS = integration/test_hdfs_with_kerberos.py
integration-kerberos: $(READY_KERBEROS) $(SPARK_CLASSES) $(HDFS) ## Checkpoints in an HDFS in secure mode, with a KDC; may install Debian packages
	$(PYTEST) $(KERBEROS)

# HDFS and YARN from Maven, and environments of containers. What is missing is named before anything
# is downloaded.
READY_YARN = $(VENV)/.ready-yarn
$(READY_YARN): $(READY)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[yarn-test]'
	touch $@
READY_YARN_35 = $(VENV_35)/.ready-yarn
$(READY_YARN_35): $(READY_35)
	$(VENV_35)/bin/python -m pip install --quiet --no-compile 'apache-beam[hadoop]==2.76.*' venv-pack
	touch $@

YARN = integration/yarn
YARN_JARS = $(VENV)/yarn/jars/.ready
$(YARN_JARS): $(YARN)/pom.xml
	mvn --quiet --batch-mode --file $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(abspath $(@D))
	touch $@

# The first Python of the Makefile, in which nothing is installed yet.
yarn-tools:
	@$(PYTHON) -m integration.yarn.needs
# TESTS="modes executors": only these, on the newest Spark. Spark 3.5 is not installed then.
YARN_FILES = $(if $(TESTS),$(TESTS:%=$(YARN)/test_yarn_%.py),$(YARN))
ON_SPARK_35 = $(addprefix $(YARN)/test_yarn_,modes.py archives.py streams.py executors.py)
yarn-test yarn-test-3.5: export YARN_HOME = $(abspath $(VENV))/yarn
yarn-test: yarn-tools $(READY_YARN) $(SPARK_CLASSES) $(YARN_JARS) ## Pipelines on a YARN of this machine, in both deploy modes, with Spark 4 and 3.5. TESTS="modes": only these
	$(PYTEST) $(YARN_FILES)
	$(if $(TESTS),,$(MAKE) yarn-test-3.5)

yarn-test-3.5: yarn-tools $(READY_YARN_35) $(YARN_JARS)
	$(VENV_35)/bin/python -m pytest $(ON_SPARK_35)

# Kubernetes and Helm are built of Go modules, and images by a Docker engine, which is started if
# none answers; build/kubernetes keeps them. What is missing is named before anything is built.
KUBERNETES = integration/kubernetes
kubernetes-tools:
	@$(PYTHON) -m integration.kubernetes.needs
# The first test waits for images, and each has a time limit of its own. TESTS="jobs": only these.
kubernetes-test: kubernetes-tools $(READY) ## The chart on a Kubernetes of this machine, as root: jobs, streams, deleted pods. TESTS="jobs": only these
	$(PYTEST) -o faulthandler_timeout=0 $(if $(TESTS),$(TESTS:%=$(KUBERNETES)/test_kubernetes_%.py),$(KUBERNETES))

kubernetes-manifests: $(READY) ## Write deploy/kubernetes: what the chart makes of some values
	$(BIN)/python -m integration.kubernetes.manifests

# The job page in a browser: that of the system, or Debian's where packages can be installed.
CHROMIUM ?= /usr/bin/chromium
$(CHROMIUM):
	apt-get update --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends chromium

READY_PAGE = $(VENV)/.ready-page
$(READY_PAGE): $(READY) | $(CHROMIUM)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[page-test]'
	touch $@

PAGE = integration/page
page-test: $(READY_PAGE) ## The job page in a headless Chromium; may install Debian packages
	CHROMIUM=$(CHROMIUM) $(PYTEST) $(PAGE)

page-pictures: $(READY_PAGE) ## Make the pictures of docs/job_page.md
	CHROMIUM=$(CHROMIUM) $(BIN)/python -m integration.page.pictures

# Needs a Docker engine, Go and debootstrap; integration/compose.py builds all else.
compose-test: $(READY) ## The containers of docker/: word counts, a killed worker, a killed job server
	$(PYTEST) integration/test_compose.py

# Of a later 3.5, not each mirror of Maven has the server of Spark Connect, which the tests start.
$(READY_35): setup.cfg pyproject.toml build_support/backend.py beam_spark_runner/import_hook.py
	$(PYTHON) -m venv $(VENV_35)
	$(VENV_35)/bin/python -m pip install --quiet --upgrade pip
	$(VENV_35)/bin/python -m pip install --quiet --editable '.[test]' \
		'pyspark[connect]==3.5.7' 'apache-beam==2.76.*'
	touch $@

integration-3.5: $(READY_35) ## The oldest Spark and Beam that are supported
	$(VENV_35)/bin/python -m pytest -m 'not connect' integration/test_spark_3_5.py \
		integration/test_state_stores_on_sessions.py tests/spark/test_texts_of_spark.py \
		tests/spark/test_pyspark_contact.py tests/test_beam_contact.py tests/test_beam_private_names.py

# Delta and Iceberg follow Spark at a distance: this is the newest that both have packages for.
$(READY_TABLES): setup.cfg pyproject.toml build_support/backend.py beam_spark_runner/import_hook.py Makefile
	$(PYTHON) -m venv $(VENV_TABLES)
	$(VENV_TABLES)/bin/python -m pip install --quiet --upgrade pip
	$(VENV_TABLES)/bin/python -m pip install --quiet --editable '.[test]' 'pyspark[connect]==4.1.*'
	touch $@

# Debian's server, which tests run in folders of their own.
POSTGRESQL = /usr/lib/postgresql
$(POSTGRESQL):
	apt-get update --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends postgresql

integration-tables: $(READY) $(SPARK_CLASSES) $(READY_TABLES) $(READY_35) | $(POSTGRESQL) ## Tables and partitions on clusters, also on Spark 3.5; Delta and Iceberg on Spark 4.1; PostgreSQL, which it may install
	$(PYTEST) $(TABLES) $(DATABASES)
	$(VENV_TABLES)/bin/python -m pytest $(LAKES) integration/test_lakes_recovered.py integration/test_streams_into_tables.py
	$(VENV_35)/bin/python -m pytest $(LAKES) integration/test_connect_3_5.py $(TABLES)
	$(VENV_35)/bin/python -m pytest -m connect integration/test_state_stores_on_sessions.py
	$(VENV_35)/bin/python -m pytest $(addprefix tests/spark/test_,spark_tables.py refused_tables.py partitioned_tables.py shared_targets.py table_catalogs.py types_in_tables.py overwritten_sources.py) \
		--on-spark tests/pipelines/test_map_partition.py $(wildcard tests/*/test_full_window_*.py)

memory: $(READY) $(SPARK_CLASSES) ## Gigabytes through workers with little memory; half an hour
	$(PYTEST) integration/test_memory.py

memory-3.5: $(READY) $(READY_35) ## The same on the oldest Spark
	PYTHON_OF_PROGRAMS=$(abspath $(VENV_35))/bin/python $(PYTEST) integration/test_memory.py

$(READY_CONFORMANCE): setup.cfg pyproject.toml build_support/backend.py beam_spark_runner/import_hook.py
	$(PYTHON) -m venv $(VENV_CONFORMANCE)
	$(VENV_CONFORMANCE)/bin/python -m pip install --quiet --upgrade pip
	$(VENV_CONFORMANCE)/bin/python -m pip install --quiet --editable '.[conformance]'
	touch $@

# What DirectRunner runs most pipelines on; where there is no Go, Beam downloads it.
PRISM = $(VENV_CONFORMANCE)/bin/prism
$(PRISM): $(READY_CONFORMANCE)
	version=$$($(VENV_CONFORMANCE)/bin/python -c 'import apache_beam; print(apache_beam.__version__)'); \
	if command -v go; then GOBIN=$(abspath $(@D)) go install github.com/apache/beam/sdks/v2/go/cmd/prism@v$$version; fi

conformance: conformance-suites random-pipelines ## Beam's suites on this runner and its peers (the table in docs/conformance.md), 1,000 random pipelines

conformance-suites: $(READY_CONFORMANCE) $(PRISM) ## Beam's suites alone; hours. SUITES="io yaml": only these; RESUME=1: continue the last run
	$(VENV_CONFORMANCE)/bin/python -m integration.validates_runner --peers $(if $(RESUME),--resume) $(SUITES)

# Prometheus's tool, from the source of a Go module: `go install` refuses modules with replacements.
PROMTOOL = $(abspath $(VENV))/bin/promtool
$(PROMTOOL):
	@command -v go >/dev/null || { echo "alerts-test needs Go 1.22 or newer: there is no go" >&2; exit 2; }
	cd "$$(go mod download -json github.com/prometheus/prometheus@v0.54.1 | $(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')" \
		&& go build -o $@ ./cmd/promtool

alerts-test: $(PROMTOOL) ## The rules of deploy/alerts.yaml on series of faults and of a quiet day; needs Go
	$(PROMTOOL) check rules deploy/alerts.yaml
	$(PROMTOOL) test rules deploy/alerts_test.yaml

random-pipelines: $(READY) $(SPARK_CLASSES) ## 1,000 random pipelines, against Beam's own runner
	RANDOM_PIPELINES=1000 $(PYTEST) --on-spark tests/pipelines/test_random_pipelines.py

simulation: $(READY) ## 7.5 million steps of simulated drivers, clusters, tasks, hosts and clocks; over an hour
	SIMULATION_STEPS=7500000 $(PYTEST) $(SIDE_BY_SIDE) tests/unit/simulation

# Prism takes part, where .venv-conformance has it; also against random declarative steps.
random-streams: export RANDOM_STREAMS ?= 600
random-streams: $(READY) $(SPARK_CLASSES) ## 600 random streaming pipelines, against a model and Beam's runners
	PRISM=$(wildcard $(abspath $(PRISM))) $(PYTEST) --on-spark tests/pipelines/test_random_streams.py
	PRISM=$(wildcard $(abspath $(PRISM))) $(PYTEST) tests/pipelines/test_random_declarative_pipelines.py

fuzz: $(READY) ## A million messages of strangers, to the parts that take them. TARGETS="metrics state": only these
	$(BIN)/python -m tests.fuzz $(addprefix --target ,$(TARGETS))

kills: $(READY) $(SPARK_CLASSES) ## Over 800 runs in which a process is killed at an event of its task or of the driver; hours
	KILLS=400 $(PYTEST) integration/test_faults.py integration/test_faults_in_one_process.py
	KILLS=80 $(PYTEST) integration/test_cluster.py -k killed_executors
	BATCH_KILLS=100 $(PYTEST) integration/test_batch_jobs_killed.py integration/test_table_writes_killed.py
	SERVER_KILLS=60 $(PYTEST) integration/test_job_servers_killed.py
	RESUMED_JOBS=20 $(PYTEST) integration/test_streams_outlive_servers.py
	STREAM_KILLS=200 $(PYTEST) integration/test_streams_killed.py integration/test_streams_lose_processes.py \
		integration/test_file_sinks.py integration/test_migrations_killed.py

soak: $(READY) ## A streaming pipeline for 10,000 epochs and an hour: what it needs must not grow
	$(BIN)/python -m benchmarks.soak

conformance-process: $(READY_CONFORMANCE) $(READY) ## Beam's suites with SDK harnesses in processes, 10,000 malformed messages; an hour
	$(VENV_CONFORMANCE)/bin/python -m integration.validates_runner --runner spark-process
	FUZZ_MESSAGES=10000 $(PYTEST) tests/harness/test_fuzz.py tests/harness/test_job_fuzz.py

conformance-loopback: $(READY_CONFORMANCE) ## Beam's suites with SDK harnesses in the client; an hour
	$(VENV_CONFORMANCE)/bin/python -m integration.validates_runner --runner spark-loopback

conformance-state-store: $(READY) ## Beam's suites of state, timers and triggers in epochs, with keys in a Redis server, without Spark; minutes
	$(BIN)/python -m integration.validates_runner --runner in-state-store FnApiRunnerTest triggers 'user state'

# Needs a Docker engine, Go and debootstrap; the image is made of this environment's packages.
conformance-docker: $(READY_CONFORMANCE) ## Beam's PortableRunnerTest, through a job server, and cross-language tests, with SDK harnesses in containers
	$(VENV_CONFORMANCE)/bin/python -m integration.validates_runner --runner spark-docker PortableRunnerTest \
		cross-language 'cross-language, job server'

# Go's module proxy has the SDK's sources, which Go builds here.
conformance-go: $(READY_CONFORMANCE) ## Tests of Beam's Go SDK, submitted to the job server by Go programs
	$(VENV_CONFORMANCE)/bin/python -m integration.go_sdk $(if $(RESUME),--resume) $(PACKAGES)

# Maven Central has the SDK with its tests. What is missing is named before anything is downloaded.
java-tools:
	@for tool in java javac mvn; do command -v $$tool >/dev/null || \
		{ echo "these tests need java and javac (a JDK of 17 or newer) and mvn (Maven): no $$tool" >&2; exit 2; }; done
postgresql-tools:
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		{ echo "these tests need PostgreSQL: apt-get install postgresql" >&2; exit 2; }
conformance-xlang-java: java-tools postgresql-tools $(READY_INTEGRATION) $(SPARK_CLASSES) $(KAFKA) $(JAVA_TRANSFORMS) ## Transforms in Java from Python (SQL, JDBC, Kafka), and the examples in Java on a job server; minutes
	$(PYTEST) $(WAITING) $(JAVA)
conformance-java: java-tools $(READY) $(SPARK_CLASSES) ## Beam's ValidatesRunner tests of the Java SDK, submitted by a JVM. TESTS="ViewTest": only these
	$(BIN)/python -m integration.java_sdk --jars $(abspath $(VENV))/java_sdk $(if $(RESUME),--resume) $(JAVA_FLAGS) $(TESTS:%='%')

# Each group has an environment, with packages that are pinned for Python 3.11, in .venv-third-party.
conformance-third-party: $(READY) $(SPARK_CLASSES) ## Tests of other projects that use Beam, next to FnApiRunner. GROUPS="small tfx": only these; RESUME=1
	$(BIN)/python -m integration.third_party $(if $(RESUME),--resume) $(GROUPS)

conformance-quick: quick-on-spark quick-in-process ## Those of Beam's suites that `make test` runs, on Spark and in the process

quick-on-spark: $(READY) $(SPARK_CLASSES)
	$(BIN)/python -m integration.validates_runner --quick --processes 2

quick-in-process: $(READY)
	$(BIN)/python -m integration.validates_runner --quick --processes 2 --runner in-process

bench: $(READY) ## Benchmarks
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.partitions
	$(BIN)/python -m benchmarks.tables
	$(BIN)/python -m benchmarks.server

clean: ## Remove virtual environments and the output of tools
	rm -rf $(VENV) $(VENV_35) $(VENV_TABLES) $(VENV_CONFORMANCE) $(VENV_STRUCTURED) $(VENV_PACKAGE) $(VENV_EXTRAS) .venv-versions .venv-third-party .venv-protoc .venv-recording build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
