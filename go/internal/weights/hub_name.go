package weights

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hubName is what a user writes for a model of a hub: org/name[@revision], or org/name/path/to/file.gguf[@revision].
type hubName struct {
	id       string // org/name
	file     string // a .gguf file of the repository, "" for the model's safetensors
	revision string // branch, tag or commit; "" for the hub's main one
}

// Bounds of names: those of the hub itself, and of file systems.
const (
	maxIDBytes       = 96
	maxRevisionBytes = 200
	maxFileBytes     = 512
	maxSegmentBytes  = 240
)

// idPattern is the hub's rule for org/name but for "--" and "..", which checkID refuses.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

var (
	commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)
	etagPattern   = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)
)

// parseHubName splits a model's name; ok is false for what looks like a path, not like a model of a hub.
func parseHubName(model string) (name hubName, ok bool, err error) {
	repo, revision, pinned := strings.Cut(model, "@")
	if strings.HasPrefix(repo, "/") || strings.HasPrefix(repo, ".") || strings.HasPrefix(repo, "~") {
		return name, false, nil
	}
	parts := strings.SplitN(repo, "/", 3)
	isFile := strings.HasSuffix(repo, ".gguf")
	if len(parts) == 1 || isFile != (len(parts) == 3) {
		return name, false, nil
	}
	name = hubName{id: parts[0] + "/" + parts[1], revision: revision}
	if isFile {
		name.file = parts[2]
		if err := checkFileName(name.file); err != nil {
			return name, true, err
		}
	}
	if err := checkID(name.id); err != nil {
		return name, true, err
	}
	if pinned {
		err = checkRevision(revision)
	}
	return name, true, err
}

func (n hubName) String() string {
	s := n.id
	if n.file != "" {
		s += "/" + n.file
	}
	if n.revision != "" {
		s += "@" + n.revision
	}
	return s
}

func checkID(id string) error {
	if len(id) > maxIDBytes || !idPattern.MatchString(id) || strings.Contains(id, "--") || strings.Contains(id, "..") {
		return fmt.Errorf("%q is not the name of a hub's model: it must be org/name of letters, digits, '.', '_' and '-' "+
			"(at most %d bytes, no '--' and no '..')", id, maxIDBytes)
	}
	return nil
}

func checkRevision(revision string) error {
	if len(revision) > maxRevisionBytes {
		return fmt.Errorf("revision of %d bytes: at most %d are allowed", len(revision), maxRevisionBytes)
	}
	if err := checkPath(revision); err != nil {
		return fmt.Errorf("revision %q %w", revision, err)
	}
	return nil
}

func checkFileName(name string) error {
	if len(name) > maxFileBytes {
		return fmt.Errorf("file name of %d bytes: at most %d are allowed", len(name), maxFileBytes)
	}
	if err := checkPath(name); err != nil {
		return fmt.Errorf("file name %q %w", name, err)
	}
	return nil
}

// checkPath refuses what could leave the folder that it is joined to, or can't be a path on every system.
func checkPath(name string) error {
	switch {
	case name == "" || !utf8.ValidString(name):
		return fmt.Errorf("is empty or not UTF-8")
	case strings.ContainsRune(name, '\\') || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("has a backslash or a control character")
	case path.IsAbs(name) || path.Clean(name) != name || name == "." || strings.HasPrefix(name, ".."):
		return fmt.Errorf("is not a plain relative path")
	}
	for segment := range strings.SplitSeq(name, "/") {
		if len(segment) > maxSegmentBytes {
			return fmt.Errorf("has a part of %d bytes: at most %d are allowed", len(segment), maxSegmentBytes)
		}
	}
	return nil
}

func checkCommit(commit string) error {
	if !commitPattern.MatchString(commit) {
		return fmt.Errorf("the hub named %q as the commit, which is not 40 hexadecimal digits", brief(commit))
	}
	return nil
}

func checkETag(etag string) error {
	if !etagPattern.MatchString(etag) {
		return fmt.Errorf("the hub's ETag %q can't be the name of a file", brief(etag))
	}
	return nil
}

// brief shortens a text of the hub for an error.
func brief(s string) string {
	const limit = 200
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
