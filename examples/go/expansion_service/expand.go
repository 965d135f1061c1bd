package main

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"sort"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/coder"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/graphx"
	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type inputs map[string]beam.PCollection
type outputs map[string]beam.PCollection

// transform applies steps to collections; the payload is its configuration from the pipeline.
type transform func(s beam.Scope, in inputs, payload []byte) (outputs, error)

// service implements Beam's expansion API, without artifacts, and for the global window only.
type service struct {
	jobpb.UnimplementedExpansionServiceServer
	environment *pipepb.Environment
	transforms  map[string]transform // by URN
}

const (
	inputURN     = "example:input"
	outputURN    = "example:output"
	globalWindow = "beam:window_fn:global_windows:v1"
)

// Expand returns errors in the response, as Beam's own expansion services do.
func (x *service) Expand(_ context.Context, request *jobpb.ExpansionRequest) (response *jobpb.ExpansionResponse, _ error) {
	defer func() {
		if problem := recover(); problem != nil { // Beam panics if steps do not fit together
			response = &jobpb.ExpansionResponse{Error: fmt.Sprint(problem)}
		}
	}()
	response, err := x.expand(request)
	if err != nil {
		return &jobpb.ExpansionResponse{Error: err.Error()}, nil
	}
	return response, nil
}

func (x *service) expand(request *jobpb.ExpansionRequest) (*jobpb.ExpansionResponse, error) {
	asked := request.GetTransform()
	apply, ok := x.transforms[asked.GetSpec().GetUrn()]
	if !ok {
		return nil, fmt.Errorf("no transform has the URN %q", asked.GetSpec().GetUrn())
	}
	// Build a pipeline in which placeholder steps produce the transform's inputs and consume its
	// outputs. cut removes these steps from its proto.
	pipeline, root := beam.NewPipelineWithRoot()
	in := inputs{}
	for _, tag := range sortedKeys(asked.GetInputs()) {
		made, err := input(root, tag, asked.GetInputs()[tag], request.GetComponents())
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", tag, err)
		}
		in[tag] = made
	}
	out, err := apply(root, in, asked.GetSpec().GetPayload())
	if err != nil {
		return nil, err
	}
	for _, tag := range sortedKeys(out) {
		beam.External(root, outputURN, []byte(tag), []beam.PCollection{out[tag]}, nil, true)
	}
	edges, _, err := pipeline.Build()
	if err != nil {
		return nil, err
	}
	made, err := graphx.Marshal(edges, &graphx.Options{Environment: x.environment})
	if err != nil {
		return nil, err
	}
	return cut(made, request), nil
}

// input makes a placeholder for an input collection, with the element type of its coder.
func input(s beam.Scope, tag, id string, components *pipepb.Components) (beam.PCollection, error) {
	collection := components.GetPcollections()[id]
	windowing := components.GetWindowingStrategies()[collection.GetWindowingStrategyId()]
	if urn := windowing.GetWindowFn().GetUrn(); urn != globalWindow {
		return beam.PCollection{}, fmt.Errorf("its windows are %q, not the global one", urn)
	}
	known, err := graphx.NewCoderUnmarshaller(components.GetCoders()).Coder(collection.GetCoderId())
	if err != nil {
		return beam.PCollection{}, err
	}
	isBounded := collection.GetIsBounded() == pipepb.IsBounded_BOUNDED
	return beam.External(s, inputURN, []byte(tag), nil, []beam.FullType{known.T}, isBounded)[0], nil
}

// cut makes the response of the pipeline that contains the transform, without the placeholders. All
// ids are in the namespace of the request, but for its inputs, which keep the ids of the request.
func cut(made *pipepb.Pipeline, request *jobpb.ExpansionRequest) *jobpb.ExpansionResponse {
	asked, own := request.GetTransform(), made.GetComponents()
	renamed := map[string]string{}
	out := map[string]string{}
	isEnd := map[string]bool{}
	name := func(id string) string {
		if given, ok := renamed[id]; ok {
			return given
		}
		return request.GetNamespace() + "_" + id
	}
	for id, step := range own.GetTransforms() {
		tag := string(step.GetSpec().GetPayload())
		switch step.GetSpec().GetUrn() {
		case inputURN:
			renamed[only(step.GetOutputs())] = asked.GetInputs()[tag]
		case outputURN:
			out[tag] = only(step.GetInputs())
		default:
			continue
		}
		isEnd[id] = true
	}
	for tag, id := range out {
		out[tag] = name(id)
	}
	parts := &pipepb.Components{
		Transforms:          map[string]*pipepb.PTransform{},
		Pcollections:        map[string]*pipepb.PCollection{},
		WindowingStrategies: renameAll(own.GetWindowingStrategies(), name),
		Coders:              renameAll(own.GetCoders(), name),
		Environments:        renameAll(own.GetEnvironments(), name),
	}
	for id, collection := range renameAll(own.GetPcollections(), name) {
		if _, isInput := request.GetComponents().GetPcollections()[id]; !isInput {
			parts.Pcollections[id] = collection
		}
	}
	for id, step := range own.GetTransforms() {
		if isEnd[id] {
			continue
		}
		step.UniqueName = asked.GetUniqueName() + "/" + step.GetUniqueName()
		renamePayload(step.GetSpec(), name)
		rename(step.ProtoReflect(), name)
		parts.Transforms[name(id)] = step
	}
	whole := &pipepb.PTransform{
		UniqueName: asked.GetUniqueName(),
		Spec:       asked.GetSpec(),
		Inputs:     asked.GetInputs(),
		Outputs:    out,
	}
	for _, id := range made.GetRootTransformIds() {
		if !isEnd[id] {
			whole.Subtransforms = append(whole.Subtransforms, name(id))
		}
	}
	return &jobpb.ExpansionResponse{
		Components: parts, Transform: whole, Requirements: made.GetRequirements(),
	}
}

func renameAll[M proto.Message](named map[string]M, name func(string) string) map[string]M {
	all := map[string]M{}
	for id, each := range named {
		rename(each.ProtoReflect(), name)
		all[name(id)] = each
	}
	return all
}

// rename changes every field in a message that refers to a component of the pipeline.
func rename(message protoreflect.Message, name func(string) string) {
	to := func(old protoreflect.Value) protoreflect.Value { return protoreflect.ValueOfString(name(old.String())) }
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		isReference := isReference(field)
		switch {
		case field.IsMap() && isReference:
			value.Map().Range(func(key protoreflect.MapKey, each protoreflect.Value) bool {
				value.Map().Set(key, to(each))
				return true
			})
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(_ protoreflect.MapKey, each protoreflect.Value) bool {
				rename(each.Message(), name)
				return true
			})
		case field.IsList() && isReference:
			for i := range value.List().Len() {
				value.List().Set(i, to(value.List().Get(i)))
			}
		case field.IsList() || field.IsMap(): // of texts, bytes or display data
		case isReference:
			message.Set(field, to(value))
		case field.Message() != nil:
			rename(value.Message(), name)
		}
		return true
	})
}

func isReference(field protoreflect.FieldDescriptor) bool {
	switch field.Name() {
	case "inputs", "outputs", "subtransforms", "component_coder_ids", "windowing_strategy_id":
		return true
	}
	return field.Kind() == protoreflect.StringKind &&
		(strings.HasSuffix(string(field.Name()), "coder_id") || field.Name() == "environment_id")
}

// renamePayload changes the payloads of those steps that name coders.
func renamePayload(spec *pipepb.FunctionSpec, name func(string) string) {
	var payload proto.Message
	switch spec.GetUrn() {
	case graphx.URNParDo:
		payload = &pipepb.ParDoPayload{}
	case graphx.URNCombinePerKey:
		payload = &pipepb.CombinePayload{}
	default:
		return
	}
	if err := proto.Unmarshal(spec.GetPayload(), payload); err != nil {
		panic(err)
	}
	rename(payload.ProtoReflect(), name)
	coded, err := proto.Marshal(payload)
	if err != nil {
		panic(err)
	}
	spec.Payload = coded
}

// decode reads the row with which pipelines of other SDKs configure a transform, for example with
// Python's ImplicitSchemaPayloadBuilder, into a struct with the same fields in the same order.
func decode(payload []byte, to any) error {
	given := &pipepb.ExternalConfigurationPayload{}
	if err := proto.Unmarshal(payload, given); err != nil {
		return err
	}
	into := reflect.ValueOf(to).Elem()
	if has, want := len(given.GetSchema().GetFields()), into.NumField(); has != want {
		return fmt.Errorf("the configuration has %d fields, and not %d", has, want)
	}
	read, err := coder.RowDecoderForStruct(into.Type())
	if err != nil {
		return err
	}
	row, err := read(bytes.NewReader(given.GetPayload()))
	if err != nil {
		return err
	}
	into.Set(reflect.ValueOf(row))
	return nil
}

func sortedKeys[V any](named map[string]V) []string {
	keys := []string{}
	for key := range named {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func only(named map[string]string) string {
	for _, id := range named {
		return id
	}
	return ""
}
