package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The files of a Hugging Face directory.
const (
	configFile     = "config.json"
	generationFile = "generation_config.json"
	indexFile      = "model.safetensors.index.json"
	singleFile     = "model.safetensors"
)

// maxJSONBytes bounds each JSON file beside the weights.
const maxJSONBytes = 100_000_000

// openDirectory opens what a Hugging Face directory holds beside the weights.
func (c *Checkpoint) openDirectory(dir string) (err error) {
	c.TokenizerDir = dir
	if c.Config, err = readJSON(dir, configFile); err != nil {
		return err
	}
	if c.Generation, err = readJSON(dir, generationFile); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// openShards opens the weights of a Hugging Face directory.
func (c *Checkpoint) openShards(dir string) error {
	quant, err := readQuantization(c.Config)
	if err != nil {
		return err
	}
	index, err := readIndex(dir)
	if err != nil {
		return err
	}
	shards := shardsOf(index)
	if index == nil {
		if shards, err = findShards(dir); err != nil {
			return err
		}
	}
	homes := make(map[string]string)
	for _, shard := range shards {
		if err := c.addShard(dir, shard, homes); err != nil {
			return fmt.Errorf("%s: %w", shard, err)
		}
	}
	if err := checkIndex(index, homes); err != nil {
		return err
	}
	return c.joinScales(quant, homes)
}

// addShard adds a safetensors file's tensors and notes in homes where each lies.
func (c *Checkpoint) addShard(dir, shard string, homes map[string]string) error {
	m, err := c.mapFile(filepath.Join(dir, shard))
	if err != nil {
		return err
	}
	tensors, err := parseSafetensors(m.data)
	if err != nil {
		return err
	}
	for i := range tensors {
		t := &tensors[i]
		if home, twice := homes[t.name]; twice {
			return fmt.Errorf("tensor %q is in %s too", t.name, home)
		}
		homes[t.name] = shard
		if fused, err := c.addFused(t); fused {
			if err != nil {
				return err
			}
			continue
		}
		if _, twice := c.tensors[t.name]; twice {
			return fmt.Errorf("tensor %q is a part of another one, too", t.name)
		}
		c.tensors[t.name] = Tensor{name: t.name, kind: t.kind, shape: t.shape, data: t.data}
	}
	return nil
}

// readIndex returns the shard of each tensor, nil when the directory has no index. All shards are there.
func readIndex(dir string) (map[string]string, error) {
	index, err := readWeightMap(dir)
	for _, name := range slices.Sorted(maps.Keys(index)) {
		if _, err := os.Stat(filepath.Join(dir, index[name])); err != nil {
			return nil, fmt.Errorf("%s: tensor %q lies in a missing shard: %w", indexFile, name, err)
		}
	}
	return index, err
}

// readWeightMap reads which shard the index names for each tensor, nil when the directory has no index.
func readWeightMap(dir string) (map[string]string, error) {
	text, err := readJSON(dir, indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%s: weight_map names no tensors", indexFile)
	}
	for _, name := range slices.Sorted(maps.Keys(index.WeightMap)) {
		shard := index.WeightMap[name]
		if shard != filepath.Base(shard) || !strings.HasSuffix(shard, ".safetensors") {
			return nil, fmt.Errorf("%s: tensor %q lies in %q, which is not the name of a safetensors file", indexFile, name, shard)
		}
	}
	return index.WeightMap, nil
}

// shardsOf lists the files that an index names.
func shardsOf(index map[string]string) []string {
	return slices.Compact(slices.Sorted(maps.Values(index)))
}

// checkIndex compares where the index places each tensor with where it is.
func checkIndex(index, homes map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(index)) {
		switch home, ok := homes[name]; {
		case !ok:
			return fmt.Errorf("%s: %s lacks tensor %q, which the index places there", indexFile, index[name], name)
		case home != index[name]:
			return fmt.Errorf("%s: tensor %q lies in %s, but the index places it in %s", indexFile, name, home, index[name])
		}
	}
	return nil
}

// shardName is how the files of a sharded model are named: number and total.
var shardName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.safetensors$`)

// findShards lists the weights of a directory without an index: model.safetensors, else every safetensors file that
// isn't an adapter or a second copy in another layout. Numbered ones are all there.
func findShards(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	shards := pickShards(names)
	if len(shards) == 0 {
		return nil, fmt.Errorf("no %s and no other safetensors weights in the directory: %s", singleFile, otherWeights(entries))
	}
	return shards, checkNumbering(shards)
}

// pickShards chooses the files with the weights from those of a directory without an index.
func pickShards(names []string) []string {
	var shards []string
	for _, name := range names {
		if name == singleFile {
			return []string{name}
		}
		stray := strings.HasPrefix(name, "consolidated") || strings.HasPrefix(name, "adapter") || strings.Contains(name, "/")
		if strings.HasSuffix(name, ".safetensors") && !stray {
			shards = append(shards, name)
		}
	}
	return shards
}

// checkNumbering finds a shard that is missing among numbered ones.
func checkNumbering(shards []string) error {
	for _, shard := range shards {
		match := shardName.FindStringSubmatch(shard)
		if match == nil {
			continue
		}
		total, err := strconv.Atoi(match[3])
		if err != nil {
			return fmt.Errorf("%s: %w", shard, err)
		}
		for number := range total {
			name := fmt.Sprintf("%s-%05d-of-%s.safetensors", match[1], number+1, match[3])
			if !slices.Contains(shards, name) {
				return fmt.Errorf("%s is missing beside %s: fetch it again", name, shard)
			}
		}
	}
	return nil
}

// otherWeights says what to do about a directory without safetensors files.
func otherWeights(entries []os.DirEntry) string {
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".gguf") {
			return fmt.Sprintf("pass the path of %s itself", entry.Name())
		}
	}
	return "convert the weights to safetensors, or pass a .gguf file"
}

// readJSON reads a JSON file of bounded size.
func readJSON(dir, name string) ([]byte, error) {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxJSONBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxJSONBytes {
		return nil, fmt.Errorf("%s is longer than the %d bytes allowed", name, maxJSONBytes)
	}
	if strings.HasPrefix(string(text[:min(len(text), len(pointerPrefix))]), pointerPrefix) {
		return nil, fmt.Errorf("%s: %w", name, pointerError(len(text)))
	}
	if !json.Valid(text) {
		return nil, fmt.Errorf("%s is not valid JSON (%d bytes): it is cut short or damaged", name, len(text))
	}
	return text, nil
}
