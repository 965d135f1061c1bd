import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.junit.Ignore;
import org.junit.Test;
import org.junit.experimental.categories.Category;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Result;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Lists or runs the ValidatesRunner tests of a jar.
 *
 * <p>{@code --list JAR} prints the tests, {@code CLASS#METHOD} each. Without arguments it runs those
 * that stdin names, one line each: {@code CLASS#METHOD OPTIONS}, where OPTIONS is the JSON of the
 * pipeline's. It answers each with a line: {@code PASSED}, {@code SKIPPED} or {@code FAILED}, and the
 * reason in base64. Whatever else is printed goes to stderr.
 */
public class TestMain {
  private static final String WANTED = "org.apache.beam.sdk.testing.ValidatesRunner";
  private static final List<String> LEFT_OUT =
      List.of(
          "org.apache.beam.sdk.testing.UsesExternalService",
          "org.apache.beam.sdk.testing.UsesSdkHarnessEnvironment",
          "org.apache.beam.sdk.testing.UsesJavaExpansionService",
          "org.apache.beam.sdk.testing.UsesPythonExpansionService");

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err);
    if (arguments.length == 2 && arguments[0].equals("--list")) {
      for (String test : testsOf(arguments[1])) {
        answers.println(test);
      }
    } else {
      BufferedReader requests =
          new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line = requests.readLine(); line != null; line = requests.readLine()) {
        int space = line.indexOf(' ');
        System.setProperty("beamTestPipelineOptions", line.substring(space + 1));
        answers.println(run(line.substring(0, space)));
        answers.flush();
      }
    }
    answers.flush();
    // Threads of tests may still run.
    System.exit(0);
  }

  private static Collection<String> testsOf(String jar) throws Exception {
    TreeSet<String> tests = new TreeSet<>();
    try (JarFile file = new JarFile(jar)) {
      for (JarEntry entry : Collections.list(file.entries())) {
        String name = entry.getName();
        if (!name.startsWith("org/apache/beam/") || !name.endsWith(".class")) {
          continue;
        }
        Class<?> found;
        try {
          found = load(name.substring(0, name.length() - ".class".length()).replace('/', '.'));
          if (!declaresTests(found)) {
            continue;
          }
        } catch (LinkageError e) {
          // It needs a library of another module's tests, which no ValidatesRunner test does.
          continue;
        }
        collect(Request.aClass(found).getRunner().getDescription(), tests);
      }
    }
    return tests;
  }

  private static boolean declaresTests(Class<?> found) {
    if (Modifier.isAbstract(found.getModifiers())) {
      return false;
    }
    for (Method method : found.getMethods()) {
      if (method.isAnnotationPresent(Test.class)
          && method.isAnnotationPresent(Category.class)) {
        return true;
      }
    }
    return false;
  }

  private static void collect(Description description, Collection<String> tests) {
    if (description.isTest() && isIn(description, WANTED)) {
      if (LEFT_OUT.stream().noneMatch(category -> isIn(description, category))) {
        tests.add(description.getClassName() + "#" + description.getMethodName());
      }
    }
    for (Description child : description.getChildren()) {
      collect(child, tests);
    }
  }

  private static boolean isIn(Description test, String category) {
    List<Class<?>> all = new ArrayList<>();
    Category ofMethod = test.getAnnotation(Category.class);
    Category ofClass = test.getTestClass().getAnnotation(Category.class);
    for (Category each : new Category[] {ofMethod, ofClass}) {
      if (each != null) {
        Collections.addAll(all, each.value());
      }
    }
    try {
      Class<?> wanted = load(category);
      return all.stream().anyMatch(wanted::isAssignableFrom);
    } catch (ClassNotFoundException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Class<?> load(String name) throws ClassNotFoundException {
    return Class.forName(name, false, TestMain.class.getClassLoader());
  }

  private static String run(String test) throws Exception {
    int hash = test.indexOf('#');
    String method = test.substring(hash + 1);
    Filter only =
        new Filter() {
          @Override
          public boolean shouldRun(Description description) {
            return description.isTest()
                ? description.getMethodName().equals(method)
                : description.getChildren().stream().anyMatch(this::shouldRun);
          }

          @Override
          public String describe() {
            return test;
          }
        };
    List<String> skipped = new ArrayList<>();
    JUnitCore core = new JUnitCore();
    core.addListener(
        new RunListener() {
          @Override
          public void testIgnored(Description description) {
            Ignore reason = description.getAnnotation(Ignore.class);
            skipped.add(reason == null ? "ignored" : reason.value());
          }

          @Override
          public void testAssumptionFailure(Failure failure) {
            skipped.add(String.valueOf(failure.getMessage()));
          }
        });
    Result result = core.run(Request.aClass(load(test.substring(0, hash))).filterWith(only));
    if (!result.wasSuccessful()) {
      StringBuilder reasons = new StringBuilder();
      for (Failure failure : result.getFailures()) {
        System.err.println(failure.getTrace());
        reasons.append(failure.getException()).append('\n');
      }
      return "FAILED " + coded(reasons.toString());
    }
    return skipped.isEmpty() ? "PASSED" : "SKIPPED " + coded(String.join("\n", skipped));
  }

  private static String coded(String text) {
    return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
  }
}
