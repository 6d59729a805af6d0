package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// hubRepo is one repository in a cache of the layout that Python's huggingface_hub uses, so that both share what they
// fetched (huggingface.co/docs/huggingface_hub/guides/manage-cache):
//
//	models--org--name/blobs/<etag>               the contents
//	models--org--name/snapshots/<commit>/<file>  symbolic links to them
//	models--org--name/refs/<revision>            the commit that a branch or tag stood for
//	models--org--name/.no_exist/<commit>/<file>  empty: the repository has no such file
//	.locks/models--org--name/<etag>.lock
type hubRepo struct {
	dir   string
	locks string
}

func openHubRepo(cache, id string) hubRepo {
	folder := "models--" + strings.ReplaceAll(id, "/", "--")
	return hubRepo{dir: filepath.Join(cache, folder), locks: filepath.Join(cache, ".locks", folder)}
}

func (r hubRepo) snapshot(commit string) string { return filepath.Join(r.dir, "snapshots", commit) }
func (r hubRepo) blob(etag string) string       { return filepath.Join(r.dir, "blobs", etag) }
func (r hubRepo) lockFile(etag string) string   { return filepath.Join(r.locks, etag+".lock") }
func (r hubRepo) ref(revision string) string    { return filepath.Join(r.dir, "refs", revision) }
func (r hubRepo) noExist(commit string) string  { return filepath.Join(r.dir, ".no_exist", commit) }

// commit returns the commit that a revision stood for when it was fetched, "" if it never was.
func (r hubRepo) commit(revision string) string {
	if commitPattern.MatchString(revision) {
		return revision
	}
	text, err := os.ReadFile(r.ref(revision))
	commit := strings.TrimSpace(string(text))
	if err != nil || !commitPattern.MatchString(commit) {
		return ""
	}
	return commit
}

// setCommit notes what a revision stands for. Readers see the old note or the new one.
func (r hubRepo) setCommit(revision, commit string) (err error) {
	if revision == commit || r.commit(revision) == commit {
		return nil
	}
	ref := r.ref(revision)
	if err := os.MkdirAll(filepath.Dir(ref), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(ref), filepath.Base(ref)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.WriteString(commit)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), ref)
}

// link makes the snapshot's file point to a blob, by a relative path so that the cache may be moved.
func (r hubRepo) link(commit, name, etag string) error {
	pointer := filepath.Join(r.snapshot(commit), filepath.FromSlash(name))
	if exists(pointer) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(pointer), 0o755); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(pointer), r.blob(etag))
	if err != nil {
		return err
	}
	if err := os.Remove(pointer); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, pointer); err != nil && !exists(pointer) {
		return err
	}
	return nil
}

// setMissing notes that the repository has no such file.
func (r hubRepo) setMissing(commit, name string) error {
	note := filepath.Join(r.noExist(commit), filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(note), 0o755); err != nil {
		return err
	}
	return os.WriteFile(note, nil, 0o644)
}

// loadable reports what a snapshot lacks to be loaded, nil if nothing.
func (r hubRepo) loadable(commit string, name hubName, noWeights bool) error {
	dir := r.snapshot(commit)
	if name.file != "" {
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name.file)))
		return err
	}
	for _, file := range []string{configFile, "tokenizer.json"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	if noWeights {
		return nil
	}
	return weightsIn(dir)
}

// weightsIn reports which of a directory's weights are missing.
func weightsIn(dir string) error {
	if index, err := readIndex(dir); index != nil || err != nil {
		return err
	}
	_, err := findShards(dir)
	return err
}

// settled reports whether a snapshot is known to be whole: it can be loaded, and each file that changes the result,
// but that not all models have, is there or is known not to exist.
func (r hubRepo) settled(commit string, name hubName, noWeights bool) bool {
	if r.loadable(commit, name, noWeights) != nil {
		return false
	}
	if name.file != "" {
		return true
	}
	for _, file := range optionalFiles {
		if !exists(filepath.Join(r.snapshot(commit), file)) && !exists(filepath.Join(r.noExist(commit), file)) {
			return false
		}
	}
	return true
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hubCacheDir returns the folder of the hub's cache, by the variables that huggingface_hub reads.
func hubCacheDir() (string, error) {
	for _, key := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if dir := os.Getenv(key); dir != "" {
			return expandHome(dir)
		}
	}
	home, err := hubHome()
	return filepath.Join(home, "hub"), err
}

// hubHome is where huggingface_hub keeps its cache and its token.
func hubHome() (string, error) {
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return expandHome(dir)
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home folder, set HF_HOME to a folder for models: %w", err)
	}
	return filepath.Join(home, ".cache", "huggingface"), nil
}
