// An expansion service: it offers transforms in Go to pipelines of other SDKs. Their steps run in
// this program, so it must run until the pipelines have ended, on the machine of the executors.
//
//	cd examples/go && go run ./expansion_service --port=8097
//
// ../../go_transform.py is a pipeline that uses it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"regexp"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/graphx"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal/extworker"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/transforms/stats"

	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	"google.golang.org/grpc"
)

var word = regexp.MustCompile(`\pL+`)

// wordsOf emits the words of a line that are long enough.
type wordsOf struct {
	MinLength int64
}

func (f *wordsOf) ProcessElement(line string, emit func(string)) {
	for _, each := range word.FindAllString(strings.ToLower(line), -1) {
		if int64(len([]rune(each))) >= f.MinLength {
			emit(each)
		}
	}
}

// wide converts a count to int64: other SDKs have a coder for that, and none for Go's int.
func wide(word string, count int) (string, int64) {
	return word, int64(count)
}

func init() {
	register.DoFn2x0[string, func(string)](&wordsOf{})
	register.Function2x2(wide)
	register.Emitter1[string]()
}

// countWords counts the words of lines.
func countWords(s beam.Scope, in inputs, payload []byte) (outputs, error) {
	var given struct{ MinLength int64 }
	if err := decode(payload, &given); err != nil {
		return nil, err
	}
	lines, ok := in["input"]
	if !ok {
		return nil, fmt.Errorf("no collection is named input")
	}
	words := beam.ParDo(s, &wordsOf{MinLength: given.MinLength}, lines)
	return outputs{"output": beam.ParDo(s, wide, stats.Count(s, words))}, nil
}

func main() {
	port := flag.Int("port", 8097, "on which to serve, on this machine only")
	flag.Parse()
	beam.Init()
	ctx := context.Background()

	workers, err := extworker.StartLoopback(ctx, 0) // this program is the SDK harness, too
	if err != nil {
		log.Fatal(err)
	}
	environment, err := graphx.CreateEnvironment(ctx, graphx.URNEnvExternal, workers.EnvironmentConfig)
	if err != nil {
		log.Fatal(err)
	}
	environment.Dependencies = nil // no file needs to be staged: this program runs the code
	listener, err := net.Listen("tcp", fmt.Sprintf("localhost:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	jobpb.RegisterExpansionServiceServer(server, &service{
		environment: environment,
		transforms:  map[string]transform{"beam:example:go:count_words:v1": countWords},
	})
	log.Printf("expansion service at %v", listener.Addr())
	log.Fatal(server.Serve(listener))
}
