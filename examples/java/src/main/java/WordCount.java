import java.util.Arrays;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.io.TextIO;
import org.apache.beam.sdk.options.Description;
import org.apache.beam.sdk.options.PipelineOptions;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.Validation.Required;
import org.apache.beam.sdk.transforms.Count;
import org.apache.beam.sdk.transforms.FlatMapElements;
import org.apache.beam.sdk.transforms.MapElements;
import org.apache.beam.sdk.values.TypeDescriptors;

/** Counts the words of text files. */
public final class WordCount {
  /** The options of the pipeline. */
  public interface Options extends PipelineOptions {
    @Description("The files to read")
    @Required
    String getInput();

    void setInput(String input);

    @Description("The beginning of the names of the files to write")
    @Required
    String getOutput();

    void setOutput(String output);
  }

  private WordCount() {}

  public static void main(String[] arguments) {
    Options options =
        PipelineOptionsFactory.fromArgs(arguments).withValidation().as(Options.class);
    Pipeline pipeline = Pipeline.create(options);
    pipeline
        .apply(TextIO.read().from(options.getInput()))
        .apply(
            FlatMapElements.into(TypeDescriptors.strings())
                .via((String line) -> Arrays.asList(line.toLowerCase().split("[^\\p{L}']+"))))
        .apply(Count.perElement())
        .apply(
            MapElements.into(TypeDescriptors.strings())
                .via(count -> count.getKey() + ": " + count.getValue()))
        .apply(TextIO.write().to(options.getOutput()));
    pipeline.run().waitUntilFinish();
  }
}
