package headwater.spark;

import java.io.Serial;
import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads compact JSON (no blanks between its parts) where its bytes lie, and refuses what is not to the letter.
 *
 * <p>Each method reads what stands at {@code at} and goes behind it. What is refused ({@link Odd}) may well be JSON:
 * another judge looks at it.
 */
final class JsonBytes {
  /** It is not what is read here, whatever else it may be. */
  static final class Odd extends RuntimeException {
    @Serial private static final long serialVersionUID = 1L;

    private Odd() {
      super(null, null, false, false); // one object for all records: no trace, nothing to be filled in
    }
  }

  static final Odd ODD = new Odd();
  /** Deeper than a row's source or a transaction's block is; a call a level. */
  private static final int DEPTH = 32;
  private static final int DIGITS_OF_LONG = 18;
  /** Of a number that nobody reads. */
  private static final int LONGEST_NUMBER = 40;
  private static final byte[] NULL = ascii("null");
  private static final byte[] TRUE = ascii("true");
  private static final byte[] FALSE = ascii("false");

  final byte[] bytes;
  int at;

  JsonBytes(byte[] bytes) {
    this.bytes = bytes;
  }

  static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }

  boolean atEnd() {
    return at == bytes.length;
  }

  /** Whether a byte stands here; behind the end stands none. */
  boolean is(char wanted) {
    return at < bytes.length && bytes[at] == wanted;
  }

  void take(char wanted) {
    if (!is(wanted)) {
      throw ODD;
    }
    at++;
  }

  /** Go behind a byte if it stands here. */
  boolean took(char wanted) {
    boolean is = is(wanted);
    at += is ? 1 : 0;
    return is;
  }

  void take(byte[] wanted) {
    if (!took(wanted)) {
      throw ODD;
    }
  }

  boolean took(byte[] wanted) {
    int end = at + wanted.length;
    if (end > bytes.length) {
      return false;
    }
    for (int one = wanted.length - 1; one >= 0; one--) { // from the end: all begin with a quote
      if (bytes[at + one] != wanted[one]) {
        return false;
      }
    }
    at = end;
    return true;
  }

  boolean tookNull() {
    return took(NULL);
  }

  boolean truth() {
    if (took(TRUE)) {
      return true;
    }
    take(FALSE);
    return false;
  }

  /** A whole number as it is written: no zero in front, no minus before nothing, no more digits than surely fit. */
  long whole() {
    boolean minus = took('-');
    int first = at;
    long found = 0;
    while (at < bytes.length && digit(bytes[at])) {
      if (at - first >= DIGITS_OF_LONG) {
        at = first;
        return wide(minus);
      }
      found = found * 10 + (bytes[at++] - '0');
    }
    proper(first, minus && found == 0);
    return minus ? -found : found;
  }

  private long wide(boolean minus) {
    int first = at;
    while (at < bytes.length && digit(bytes[at])) {
      at++;
    }
    proper(first, false);
    try {
      return Long.parseLong((minus ? "-" : "") + new String(bytes, first, at - first, StandardCharsets.US_ASCII));
    } catch (NumberFormatException error) {
      throw ODD;
    }
  }

  private void proper(int first, boolean minusZero) {
    boolean more = at < bytes.length && (bytes[at] == '.' || bytes[at] == 'e' || bytes[at] == 'E');
    if (at == first || (bytes[first] == '0' && at - first > 1) || minusZero || more) {
      throw ODD;
    }
  }

  /** The text of a number with a fraction or an exponent. */
  String fraction() {
    int first = at;
    if (!number()) {
      throw ODD;
    }
    return new String(bytes, first, at - first, StandardCharsets.US_ASCII);
  }

  /** Go behind a number; whether it has a fraction or an exponent. */
  private boolean number() {
    took('-');
    int first = at;
    digits();
    if (bytes[first] == '0' && at - first > 1) {
      throw ODD;
    }
    boolean more = took('.');
    if (more) {
      digits();
    }
    if (took('e') || took('E')) {
      more = true;
      if (!took('-')) {
        took('+');
      }
      digits();
    }
    return more;
  }

  private void digits() {
    int first = at;
    while (at < bytes.length && digit(bytes[at])) {
      at++;
    }
    if (at == first) {
      throw ODD;
    }
  }

  private static boolean digit(byte one) {
    return one >= '0' && one <= '9';
  }

  /** A text, without a copy of its bytes where it has no escapes. */
  UTF8String text() {
    take('"');
    int first = at;
    int end = plain();
    if (bytes[end] == '"') {
      at = end + 1;
      return UTF8String.fromBytes(bytes, first, end - first);
    }
    return escaped(first, end);
  }

  /** Where from here the first quote or backslash stands. */
  private int plain() {
    for (int one = at; one < bytes.length; one++) {
      byte here = bytes[one];
      if (here == '"' || here == '\\') {
        return one;
      }
      if (here >= 0 && here < ' ') {
        throw ODD;
      }
    }
    throw ODD;
  }

  private UTF8String escaped(int first, int end) {
    int until = end;
    while (bytes[until] == '\\') { // to the quote, for the size of what is made
      at = until + 2;
      until = plain();
    }
    byte[] made = new byte[until - first];
    int size = 0;
    at = first;
    while (at < until) {
      byte here = bytes[at++];
      made[size++] = here == '\\' ? unescaped() : here;
    }
    at = until + 1;
    return UTF8String.fromBytes(made, 0, size);
  }

  /** What an escape stands for; of those by number only what has no other way: the rest may be halves of a character. */
  private byte unescaped() {
    byte kind = bytes[at++];
    return switch (kind) {
      case '"', '\\', '/' -> kind;
      case 'b' -> '\b';
      case 'f' -> '\f';
      case 'n' -> '\n';
      case 'r' -> '\r';
      case 't' -> '\t';
      case 'u' -> control();
      default -> throw ODD;
    };
  }

  private byte control() {
    if (at + 4 >= bytes.length || bytes[at] != '0' || bytes[at + 1] != '0') {
      throw ODD;
    }
    int high = Character.digit(bytes[at + 2], 16);
    int low = Character.digit(bytes[at + 3], 16);
    int found = high * 16 + low;
    if (high < 0 || high > 1 || low < 0 || found == 0) {
      throw ODD;
    }
    at += 4;
    return (byte) found;
  }

  /** Go behind a field that is not asked for; one whose name has escapes might be. */
  void skipField() {
    take('"');
    at = plain();
    take('"');
    take(':');
    skip(DEPTH);
  }

  private void skip(int depth) {
    if (depth == 0 || atEnd()) {
      throw ODD;
    }
    switch (bytes[at]) {
      case '"' -> text();
      case '{' -> many('}', depth, true);
      case '[' -> many(']', depth, false);
      case 'n' -> take(NULL);
      case 't', 'f' -> truth();
      default -> skipNumber();
    }
  }

  /** With an exponent it may be one that has no value. */
  private void skipNumber() {
    int first = at;
    number();
    if (at - first > LONGEST_NUMBER || exponent(first)) {
      throw ODD;
    }
  }

  private boolean exponent(int first) {
    for (int one = first; one < at; one++) {
      if (bytes[one] == 'e' || bytes[one] == 'E') {
        return true;
      }
    }
    return false;
  }

  private void many(char last, int depth, boolean named) {
    at++;
    if (took(last)) {
      return;
    }
    do {
      if (named) {
        text();
        take(':');
      }
      skip(depth - 1);
    } while (took(','));
    take(last);
  }
}
