package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const lockRetry = 100 * time.Millisecond

// lock takes the exclusive lock of a file, waiting for other processes until ctx ends. The file stays when unlocked:
// removing it would let two processes lock two files of the same name.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for waiting := false; ; waiting = true {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(file, path) {
			return func() { file.Close() }, nil
		}
		if err == nil { // another program has removed the file that was waited for
			file.Close()
			return lock(ctx, path, progress)
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		if !waiting {
			fmt.Fprintf(progress, "waiting for another process that fetches this model (%s)\n", path)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(lockRetry):
		}
	}
}

func sameFile(file *os.File, path string) bool {
	opened, err := file.Stat()
	named, pathErr := os.Stat(path)
	return err == nil && pathErr == nil && os.SameFile(opened, named)
}
