package headwater.spark;

import java.time.LocalDate;
import java.util.Arrays;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;

/** What windows and matches make of days and moments, without a Spark: compiled beside their classes. */
public final class TimedCheck {
  private static final long AT = 1_700_000_000_000_000L;

  public static void main(String[] args) {
    if (args[0].equals("days")) {
      for (String day : Arrays.asList(args).subList(1, args.length)) {
        System.out.println(Timed.text(DateTimeUtils.toJavaDate((int) LocalDate.parse(day).toEpochDay())));
      }
    } else {
      forgets(Long.parseLong(args[1]), Long.parseLong(args[2]));
    }
  }

  /** A first event, and what is left of it when nothing earlier than {@code safe} after it can come any more. */
  private static void forgets(long safe, long within) {
    Happenings held = new Happenings();
    held.add(event(0, AT, "first"));
    held.forget(AT + safe, within);
    if (!held.isEmpty()) {
      Happenings.One first = held.firsts().get(0);
      held.add(event(1, AT + safe, "then"));
      System.out.println("kept " + held.after(first, within).count + (first.settled ? " settled" : " open"));
    } else {
      System.out.println("forgotten");
    }
  }

  private static Row event(int kind, long at, String id) {
    Row said = RowFactory.create(RowFactory.create(id), RowFactory.create(id));
    return RowFactory.create("v", id, 1L, null, "t", 0, 1L, 1L, "k", at, at, false, null, kind, said);
  }
}
