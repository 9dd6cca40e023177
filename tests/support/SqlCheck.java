package headwater.spark;

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.sql.catalyst.analysis.SimpleAnalyzer$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.optimizer.RewriteWithExpression$;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.internal.SQLConf;

/**
 * What Spark SQL gives that is made into code as Step.java does it, from an analysed plan, without a Spark: one expression a
 * line of a file, of each a line with its text, or why it fails.
 */
public final class SqlCheck {
  public static void main(String[] args) throws Exception {
    // Heeded under -Dspark.testing; otherwise what can't be made into code is computed slowly, and a log says so each time.
    SQLConf.get().setConfString("spark.sql.codegen.factoryMode", "CODEGEN_ONLY");
    for (String said : Files.readAllLines(Path.of(args[0]))) {
      LogicalPlan parsed = CatalystSqlParser$.MODULE$.parsePlan("SELECT CAST(" + said + " AS string) AS v");
      LogicalPlan analyzed = SimpleAnalyzer$.MODULE$.execute(parsed);
      Project project = (Project) RewriteWithExpression$.MODULE$.apply(ReplaceExpressions$.MODULE$.apply(analyzed));
      try {
        var made = UnsafeProjection.create(((Alias) project.projectList().head()).child()).apply(new GenericInternalRow(0));
        System.out.println(made.isNullAt(0) ? "NULL" : made.getUTF8String(0).toString());
      } catch (RuntimeException error) {
        System.out.println("failed: " + error.getMessage().lines().findFirst().orElse(""));
      }
    }
  }
}
