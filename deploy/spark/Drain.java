package headwater.spark;

import java.io.Serializable;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.streaming.OutputMode;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * A sink for queries whose work is done in their tasks: runs the batch and lets go of its rows.
 *
 * <p>Spark's {@code noop} does the same through its writers of version 2, and in 4.1 such a batch is an action in an
 * action: its plan is made a third time, only to be described for a second execution that nobody looks at
 * (docs/decisions/micro-batches.md). Here the plan that Spark has made for the batch is run as it is.
 */
public final class Drain implements StreamSinkProvider {
  @Override
  public Sink createSink(
      SQLContext session, Map<String, String> options, Seq<String> partitioning, OutputMode mode) {
    return new Drained();
  }

  private static final class Drained implements Sink {
    @Override
    public void addBatch(long batch, Dataset<Row> rows) {
      RDD<InternalRow> made = rows.queryExecution().toRdd();
      made.sparkContext().runJob(made, new Run(), ClassTag.Unit());
    }

    @Override
    public String toString() {
      return "headwater";
    }
  }

  /** A class with a name, and no lambda: Spark reads a lambda's byte code in each batch, to clean what it holds. */
  private static final class Run extends AbstractFunction1<Iterator<InternalRow>, BoxedUnit> implements Serializable {
    private static final long serialVersionUID = 1;

    @Override
    public BoxedUnit apply(Iterator<InternalRow> rows) {
      while (rows.hasNext()) {
        rows.next();
      }
      return BoxedUnit.UNIT;
    }
  }
}
