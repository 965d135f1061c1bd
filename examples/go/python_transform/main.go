// A Go pipeline with a transform of Beam's Python SDK, which a Python expansion service expands.
// The steps of the transform run in Python, all others in this program.
//
//	python -m beam_spark_runner --spark_master_url='local[2]'
//	python -m apache_beam.runners.portability.expansion_service_main --port=8097 \
//	    --fully_qualified_name_glob='*' --environment_type=PROCESS --environment_config='{}'
//	cd examples/go && go run ./python_transform --expansion_service=localhost:8097 \
//	    --runner=universal --endpoint=localhost:8099 --environment_type=LOOPBACK
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/typex"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/util/reflectx"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/testing/passert"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/transforms/xlang/python"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/x/beamx"
)

var service = flag.String("expansion_service", "localhost:8097", "HOST:PORT of a Python one")

const lines = "to be or not to be\nthat is the question"

// words emits the words of a line, with their length.
func words(line string, emit func(string, int64)) {
	for _, word := range strings.Fields(line) {
		emit(word, int64(len(word)))
	}
}

func text(word string, count int64) string {
	return fmt.Sprintf("%s: %d", word, count)
}

func init() {
	register.Function2x0(words)
	register.Function2x1(text)
	register.Emitter2[string, int64]()
}

func main() {
	flag.Parse()
	beam.Init()
	pipeline, s := beam.NewPipelineWithRoot()
	read := beam.ParDo(s, words, beam.CreateList(s, strings.Split(lines, "\n")))

	// Any Python transform can be named by its class; this one has no arguments. Its output has the
	// type of its input: with another type, Go's SDK (2.77) mixes up the ids of coders.
	type none struct{}
	count := python.NewExternalTransform[none, none]("apache_beam.transforms.combiners.Count.PerKey")
	counted := beam.CrossLanguage(
		s, "beam:transforms:python:fully_qualified_named", beam.CrossLanguagePayload(count),
		*service, beam.UnnamedInput(read),
		beam.UnnamedOutput(typex.NewKV(typex.New(reflectx.String), typex.New(reflectx.Int64))),
	)[beam.UnnamedOutputTag()]

	texts := beam.ParDo(s, text, counted)
	passert.Equals(
		s, texts, "to: 2", "be: 2", "or: 1", "not: 1", "that: 1", "is: 1", "the: 1", "question: 1")
	if err := beamx.Run(context.Background(), pipeline); err != nil {
		log.Fatal(err)
	}
}
