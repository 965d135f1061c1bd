import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.coders.KvCoder;
import org.apache.beam.sdk.coders.StringUtf8Coder;
import org.apache.beam.sdk.coders.VarLongCoder;
import org.apache.beam.sdk.io.TextIO;
import org.apache.beam.sdk.options.Description;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.StreamingOptions;
import org.apache.beam.sdk.options.Validation.Required;
import org.apache.beam.sdk.state.StateSpec;
import org.apache.beam.sdk.state.StateSpecs;
import org.apache.beam.sdk.state.ValueState;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.ParDo;
import org.apache.beam.sdk.transforms.PeriodicImpulse;
import org.apache.beam.sdk.transforms.MapElements;
import org.apache.beam.sdk.transforms.windowing.FixedWindows;
import org.apache.beam.sdk.transforms.windowing.Window;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.TypeDescriptors;
import org.joda.time.Duration;
import org.joda.time.Instant;

/** Keeps the total of each key, of a stream that ends after {@code --seconds}. */
public final class RunningTotals {
  /** The options of the pipeline. */
  public interface Options extends StreamingOptions {
    @Description("How long the stream lasts")
    @Required
    Integer getSeconds();

    void setSeconds(Integer seconds);

    @Description("The beginning of the names of the files to write")
    @Required
    String getOutput();

    void setOutput(String output);
  }

  /** Adds each value to what its key has in its state. */
  static final class Add extends DoFn<KV<String, Long>, String> {
    @StateId("total")
    private final StateSpec<ValueState<Long>> spec = StateSpecs.value(VarLongCoder.of());

    @ProcessElement
    public void process(
        @Element KV<String, Long> added,
        @StateId("total") ValueState<Long> total,
        OutputReceiver<String> output) {
      Long before = total.read();
      long now = added.getValue() + (before == null ? 0 : before);
      total.write(now);
      output.output(added.getKey() + ": " + now);
    }
  }

  private RunningTotals() {}

  public static void main(String[] arguments) {
    Options options =
        PipelineOptionsFactory.fromArgs(arguments).withValidation().as(Options.class);
    options.setStreaming(true);
    Pipeline pipeline = Pipeline.create(options);
    Instant start = Instant.now();
    pipeline
        .apply(
            PeriodicImpulse.create()
                .startAt(start)
                .stopAt(start.plus(Duration.standardSeconds(options.getSeconds())))
                .withInterval(Duration.standardSeconds(1)))
        .apply(
            MapElements.into(
                    TypeDescriptors.kvs(TypeDescriptors.strings(), TypeDescriptors.longs()))
                .via(time -> KV.of("seconds", 1L)))
        .setCoder(KvCoder.of(StringUtf8Coder.of(), VarLongCoder.of()))
        .apply(ParDo.of(new Add()))
        .apply(Window.into(FixedWindows.of(Duration.standardSeconds(5))))
        .apply(TextIO.write().to(options.getOutput()).withWindowedWrites().withNumShards(1));
    pipeline.run().waitUntilFinish();
  }
}
