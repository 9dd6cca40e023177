package headwater.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * A warehouse's files in a local folder, made without a program and without a second file for each.
 *
 * <p>Without its native library Hadoop starts `chmod` to say who may read a file: four times for each, with the file of
 * checksums that it puts beside it. A merge of 500 rows makes seven files; the programs were a tenth of its processor
 * time (docs/decisions/warehouse.md). Neither Iceberg's other readers nor a bucket know such checksums; Parquet and Avro
 * have their own.
 *
 * <p>Files of before keep theirs: they are not looked at, are hidden as they were, and go with the file.
 */
public final class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Plain());
    setVerifyChecksum(false);
    setWriteChecksum(false);
  }

  private static final class Plain extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) {
        super.setPermission(path, permission);
        return;
      }
      try {
        String named = permission.toString();
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(named));
      } catch (UnsupportedOperationException without) {
        super.setPermission(path, permission); // a file system that knows no such permissions
      }
    }
  }
}
