package headwater.spark;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Files of a checkpoint in a local folder, made by this process itself.
 *
 * <p>Without its native library Hadoop starts a program for what the JDK has calls for: `chmod` for each file that is
 * made, `readlink` four times for each that is renamed. A micro-batch makes two files: ten processes, some 50 of its
 * 130 ms and a third of its processor time (docs/decisions/micro-batches.md).
 *
 * <p>A file appears whole or not at all, and a second writer of the same batch is refused, as by Spark's own. Permissions
 * are those of the process's umask.
 */
public final class LocalCheckpoints extends FileSystemBasedCheckpointFileManager {
  public LocalCheckpoints(Path path, Configuration conf) {
    super(path, conf);
  }

  @Override
  public FSDataOutputStream createTempFile(Path path) {
    if (!isLocal()) {
      return super.createTempFile(path);
    }
    try {
      return new FSDataOutputStream(new BufferedOutputStream(Files.newOutputStream(place(path))), null);
    } catch (IOException error) {
      throw asIs(error);
    }
  }

  @Override
  public void renameTempFile(Path from, Path to, boolean overwrite) {
    if (!isLocal()) {
      super.renameTempFile(from, to, overwrite);
      return;
    }
    try {
      if (overwrite) {
        Files.move(place(from), place(to), StandardCopyOption.ATOMIC_MOVE);
      } else if (!linked(place(from), place(to))) {
        super.renameTempFile(from, to, overwrite);
      }
    } catch (IOException error) {
      throw asIs(error);
    }
  }

  /** Gives a file its name in one step that fails if the name is taken; a rename would take its place. */
  private static boolean linked(java.nio.file.Path made, java.nio.file.Path wanted) throws IOException {
    try {
      Files.createLink(wanted, made);
    } catch (java.nio.file.FileAlreadyExistsException taken) {
      Files.delete(made);
      throw new FileAlreadyExistsException("Failed to rename temp file " + made + " to " + wanted + ": it exists");
    } catch (UnsupportedOperationException | FileSystemException without) {
      return false; // a file system that has no hard links
    }
    Files.delete(made);
    return true;
  }

  private static java.nio.file.Path place(Path path) {
    return Paths.get(path.toUri().getPath());
  }

  /** Scala's methods declare no exceptions, and their callers expect those of the file system. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException asIs(Throwable error) throws E {
    throw (E) error;
  }
}
