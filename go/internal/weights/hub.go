package weights

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A hub holds models under the names org/name.
type hub interface {
	// list names a revision's files.
	list(ctx context.Context, id, revision string) (listing, error)
	// stat tells about a file of the listing.
	stat(ctx context.Context, id, commit, file string) (remoteFile, error)
	// explain says what an error of the hub means for a model's name.
	explain(name hubName, err error) error
}

// listing is what a repository holds at a commit.
type listing struct {
	commit string
	files  []string
}

// remoteFile is a file of a hub.
type remoteFile struct {
	url  string
	size int64
	etag string // the SHA-256 of the contents, or the SHA-1 that git gives them
}

// The files of a repository that are fetched beside the weights. Not all models have the optional ones, but they
// change what a model answers.
var (
	optionalFiles = []string{generationFile, "tokenizer_config.json", "chat_template.jinja"}
	smallFiles    = append([]string{
		configFile, indexFile, "tokenizer.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
		"vocab.json", "merges.txt", "chat_template.json",
	}, optionalFiles...)
)

// maxListed bounds the files of a repository.
const maxListed = 100_000

// hubFetch fetches one model into a cache.
type hubFetch struct {
	hub       hub
	client    *client
	repo      hubRepo
	name      hubName
	noWeights bool
	update    bool // ask the hub though the cache holds the model
	progress  io.Writer
}

// run returns the path of the model, a directory or a .gguf file. A snapshot that is known to be whole is taken as it
// is; else the hub is asked, and what the cache holds is used if the hub can't be reached.
func (f *hubFetch) run(ctx context.Context, offline bool) (string, error) {
	commit := f.repo.commit(f.name.revision)
	cached := commit != "" && f.repo.loadable(commit, f.name, f.noWeights) == nil
	if cached && (offline || !f.update && f.repo.settled(commit, f.name, f.noWeights)) {
		return f.path(commit), nil
	}
	if offline {
		return "", f.notCached(commit)
	}
	revision := f.name.revision
	if cached {
		f.client.attempts = 1
	}
	if cached && !f.update {
		revision = commit // only what is missing of it
	}
	all, err := f.list(ctx, revision)
	if err != nil {
		if cached && ctx.Err() == nil {
			fmt.Fprintf(f.progress, "using %s as it is in the cache: %v\n", f.name, err)
			return f.path(commit), nil
		}
		return "", err
	}
	f.client.attempts = maxAttempts
	if err := f.fetch(ctx, all); err != nil {
		return "", err
	}
	return f.path(all.commit), f.repo.setCommit(f.name.revision, all.commit)
}

func (f *hubFetch) path(commit string) string {
	return filepath.Join(f.repo.snapshot(commit), filepath.FromSlash(f.name.file))
}

func (f *hubFetch) notCached(commit string) error {
	reason := fmt.Errorf("revision %q was never fetched to %s", f.name.revision, f.repo.dir)
	if commit != "" {
		reason = f.repo.loadable(commit, f.name, f.noWeights)
	}
	return fmt.Errorf("%s is not whole in the cache, and HF_HUB_OFFLINE forbids to fetch it: %w", f.name, reason)
}

// list asks the hub what there is, and checks every name before any is used.
func (f *hubFetch) list(ctx context.Context, revision string) (listing, error) {
	all, err := f.hub.list(ctx, f.name.id, revision)
	if err != nil {
		return all, f.hub.explain(f.name, err)
	}
	if err := checkCommit(all.commit); err != nil {
		return all, err
	}
	if len(all.files) > maxListed {
		return all, fmt.Errorf("%s lists %d files: at most %d are allowed", f.name, len(all.files), maxListed)
	}
	for _, file := range all.files {
		if err := checkFileName(file); err != nil {
			return all, fmt.Errorf("%s: the hub lists an unusable file: %w", f.name, err)
		}
	}
	return all, nil
}

// fetch brings the snapshot's files: the small ones first, so that a snapshot with weights is whole.
func (f *hubFetch) fetch(ctx context.Context, all listing) error {
	if f.name.file != "" {
		if !slices.Contains(all.files, f.name.file) {
			return fmt.Errorf("%s has no file %s%s", f.name.id, f.name.file, offerGGUF(f.name.id, all.files))
		}
		return f.get(ctx, all.commit, f.name.file)
	}
	if !slices.Contains(all.files, configFile) {
		return fmt.Errorf("%s has no %s, so it is not a model in Hugging Face's layout%s", f.name.id, configFile, offerGGUF(f.name.id, all.files))
	}
	var small []string
	for _, file := range all.files {
		if slices.Contains(smallFiles, file) || path.Dir(file) == "additional_chat_templates" {
			small = append(small, file)
		}
	}
	if err := f.get(ctx, all.commit, small...); err != nil {
		return err
	}
	for _, file := range optionalFiles {
		if !slices.Contains(all.files, file) {
			if err := f.repo.setMissing(all.commit, file); err != nil {
				return err
			}
		}
	}
	if f.noWeights {
		return nil
	}
	shards, err := f.shards(all)
	if err != nil {
		return err
	}
	return f.get(ctx, all.commit, shards...)
}

// shards returns the files that hold the weights: those of the index, else by their names.
func (f *hubFetch) shards(all listing) ([]string, error) {
	index, err := readWeightMap(f.repo.snapshot(all.commit))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name.id, err)
	}
	if index != nil {
		shards := shardsOf(index)
		for _, shard := range shards {
			if !slices.Contains(all.files, shard) {
				return nil, fmt.Errorf("%s lacks %s, which its %s names", f.name.id, shard, indexFile)
			}
		}
		return shards, nil
	}
	shards := pickShards(all.files)
	if len(shards) == 0 {
		return nil, fmt.Errorf("%s has no weights as safetensors%s", f.name.id, offerGGUF(f.name.id, all.files))
	}
	return shards, nil
}

// offerGGUF says which files of a repository without safetensors can be run.
func offerGGUF(id string, files []string) string {
	const shown = 12
	var found []string
	for _, file := range files {
		if strings.HasSuffix(file, ".gguf") {
			found = append(found, id+"/"+file)
		}
	}
	switch {
	case len(found) == 0:
		return ""
	case len(found) > shown:
		found = append(found[:shown], fmt.Sprintf("%d more", len(found)-shown))
	}
	return "; it has GGUF files, name one of them: " + strings.Join(found, ", ")
}

// get fetches files that aren't in the snapshot yet.
func (f *hubFetch) get(ctx context.Context, commit string, files ...string) error {
	var missing []string
	var stats []remoteFile
	var total int64
	for _, file := range files {
		if exists(filepath.Join(f.repo.snapshot(commit), filepath.FromSlash(file))) {
			continue
		}
		stat, err := f.hub.stat(ctx, f.name.id, commit, file)
		if err == nil {
			err = checkETag(stat.etag)
		}
		if err != nil {
			return f.hub.explain(f.name, fmt.Errorf("%s: %w", file, err))
		}
		missing, stats, total = append(missing, file), append(stats, stat), total+stat.size
	}
	if len(missing) > 0 {
		fmt.Fprintf(f.progress, "fetching %s at %.8s: %d files, %s\n", f.name.id, commit, len(missing), megabytes(total))
	}
	for i, file := range missing {
		if err := f.getOne(ctx, commit, file, stats[i]); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// getOne fetches a file under its lock, unless another process did so meanwhile, and links it.
func (f *hubFetch) getOne(ctx context.Context, commit, file string, stat remoteFile) error {
	blob, lockFile := f.repo.blob(stat.etag), f.repo.lockFile(stat.etag)
	if err := errors.Join(os.MkdirAll(filepath.Dir(blob), 0o755), os.MkdirAll(filepath.Dir(lockFile), 0o755)); err != nil {
		return err
	}
	unlock, err := lock(ctx, lockFile, f.progress)
	if err != nil {
		return err
	}
	defer unlock()
	if !exists(blob) {
		if err := f.download(ctx, file, blob, stat); err != nil {
			return err
		}
	}
	return f.repo.link(commit, file, stat.etag)
}

// download makes the blob. What an earlier attempt has left is completed; if that turns out to be wrong, all of the
// file is fetched once more.
func (f *hubFetch) download(ctx context.Context, name, blob string, stat remoteFile) error {
	partial := blob + ".incomplete"
	file, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	resumed := info.Size() > 0
	for {
		if err := f.client.download(ctx, stat.url, file, stat.size, f.reporter(name, stat.size)); err != nil {
			return err
		}
		if err = verify(file, stat); err == nil {
			break
		}
		if !resumed {
			return errors.Join(err, os.Remove(partial))
		}
		fmt.Fprintf(f.progress, "%s: what was left of an earlier download is of another file; fetching it anew\n", name)
		resumed = false
		if err := file.Truncate(0); err != nil {
			return err
		}
	}
	if err := errors.Join(file.Sync(), os.Rename(partial, blob)); err != nil {
		return err
	}
	fmt.Fprintf(f.progress, "fetched %s (%s)\n", name, megabytes(stat.size))
	return syncDir(filepath.Dir(blob))
}

// verify compares a file with what the hub says of it. An ETag that is no known checksum leaves only the size.
func verify(file *os.File, stat remoteFile) error {
	var sum hash.Hash
	switch len(stat.etag) {
	case 2 * sha256.Size:
		sum = sha256.New()
	case 2 * sha1.Size: // git's object name of the contents
		sum = sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", stat.size)
	}
	if err := seek(file, 0); err != nil || sum == nil {
		return err
	}
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != stat.etag {
		return fmt.Errorf("%s has checksum %s, but the hub names %s: the file was damaged on its way, or changed", stat.url, got, stat.etag)
	}
	return nil
}

// reportInterval is how often a running download writes a line.
const reportInterval = 5 * time.Second

// reporter writes how far a file's download is, at most every few seconds.
func (f *hubFetch) reporter(name string, size int64) func(done int64) {
	begin := time.Now()
	last, first := begin, int64(-1)
	return func(done int64) {
		if first < 0 {
			first = done
		}
		now := time.Now()
		if now.Sub(last) < reportInterval {
			return
		}
		last = now
		speed := int64(float64(done-first) / now.Sub(begin).Seconds())
		fmt.Fprintf(f.progress, "%s: %d%% of %s, %s/s\n", name, 100*done/max(size, 1), megabytes(size), megabytes(speed))
	}
}

func megabytes(n int64) string {
	if n < 10_000_000 {
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d MB", n/1_000_000)
}

// notFound is an error about a model that doesn't exist, or not for this user.
type notFound struct{ error }

func (e notFound) Unwrap() []error { return []error{e.error, fs.ErrNotExist} }

func notFoundf(format string, args ...any) error { return notFound{fmt.Errorf(format, args...)} }
