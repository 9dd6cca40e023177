package headwater.spark;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.encoders.RowEncoder;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.BindReferences;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.package$;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.optimizer.RewriteWithExpression$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.StructType;

/**
 * A Spark SQL expression over a state and an array of events, where no plan is: bound by the driver, made into code by each
 * task that uses it.
 */
final class Step implements Serializable {
  private final Expression bound;
  private final StructType in;
  private final StructType out;
  private transient UnsafeProjection projection;
  private transient ExpressionEncoder.Serializer<Row> reads;
  private transient ExpressionEncoder.Deserializer<Row> writes;

  private Step(Expression bound, StructType in, StructType out) {
    this.bound = bound;
    this.in = in;
    this.out = out;
  }

  /** The only column of a frame, which selects it from {@code held} and {@code events}. */
  static Step of(Dataset<Row> frame) {
    // Functions that stand for others, as nvl and validate_utf8 do, refuse to be evaluated, and so does what nullif and
    // BETWEEN become then: the optimizer, which replaces them, never sees this plan.
    LogicalPlan analyzed = frame.queryExecution().analyzed();
    Project project = (Project) RewriteWithExpression$.MODULE$.apply(ReplaceExpressions$.MODULE$.apply(analyzed));
    Expression named = (Expression) project.projectList().head();
    Expression said = named instanceof Alias ? ((Alias) named).child() : named;
    LogicalPlan below = project.child();
    Expression bound = BindReferences.bindReference(said, package$.MODULE$.AttributeSeq(below.output()), false);
    return new Step(bound, below.schema(), frame.schema());
  }

  /** The state's type. */
  StructType type() {
    return (StructType) out.apply(0).dataType();
  }

  /** The state after some events; null once they have ended it. */
  Row apply(Row held, List<Row> events) {
    if (projection == null) {
      projection = UnsafeProjection.create(bound);
      reads = encoder(in).createSerializer();
      writes = encoder(out).createDeserializer();
    }
    InternalRow given = reads.apply(RowFactory.create(held, events.toArray(Row[]::new)));
    return writes.apply(projection.apply(given)).getStruct(0);
  }

  private static ExpressionEncoder<Row> encoder(StructType type) {
    ExpressionEncoder<Row> made = ExpressionEncoder.apply(RowEncoder.encoderFor(type));
    return made.resolveAndBind(made.resolveAndBind$default$1(), made.resolveAndBind$default$2());
  }
}
