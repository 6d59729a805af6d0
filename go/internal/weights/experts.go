package weights

import (
	"fmt"
	"strconv"
	"strings"
)

// maxExperts bounds the tensors that one tensor of a file becomes.
const maxExperts = 1 << 12

// expertConfig is the part of config.json that describes a mixture of experts.
type expertConfig struct {
	NumExperts       int  `json:"num_experts,omitempty"`
	NumExpertsPerTok int  `json:"num_experts_per_tok,omitempty"`
	MoEIntermediate  int  `json:"moe_intermediate_size,omitempty"`
	NormTopKProb     bool `json:"norm_topk_prob,omitempty"`
}

// readExperts reads the sizes of the mixture. llama.cpp scales the weights of a token's experts to a sum of one unless
// the metadata says otherwise.
func (c *expertConfig) readExperts(s *settings, arch *architecture) (err error) {
	if !arch.experts {
		if n, ok := s.metadata.Int(s.prefix + "expert_count"); ok && n > 0 {
			return fmt.Errorf("the model has %d experts, which this architecture does not support", n)
		}
		return nil
	}
	if c.NumExperts, err = s.experts(); err != nil {
		return err
	}
	if c.NumExpertsPerTok, err = s.positive("expert_used_count"); err != nil {
		return err
	}
	if c.MoEIntermediate, err = s.positive("expert_feed_forward_length"); err != nil {
		return err
	}
	norm, ok := s.metadata.Bool(s.prefix + "expert_weights_norm")
	c.NormTopKProb = norm || !ok
	return nil
}

func (s *settings) experts() (int, error) {
	n, err := s.positive("expert_count")
	if err == nil && n > maxExperts {
		return 0, fmt.Errorf("metadata %sexpert_count is %d, not 1 to %d", s.prefix, n, maxExperts)
	}
	return n, err
}

// addExperts adds the matrices of a GGUF tensor [experts, rows, cols] under that name, the "*" in it being a number.
func (c *Checkpoint) addExperts(t *stored, name string, settings *settings) error {
	n, err := settings.experts()
	if err != nil {
		return err
	}
	if len(t.shape) != 3 || t.shape[0] != n {
		return fmt.Errorf("tensor %q has shape %v, not one matrix for each of %d experts", t.name, t.shape, n)
	}
	return c.splitExperts(t, name)
}

// fusedExperts are the ends of the names under which transformers 5 keeps the matrices of all experts of a layer
// in one tensor, [experts, rows, cols].
var fusedExperts = []string{".experts.gate_up_proj", ".experts.down_proj"}

// addFused adds the matrices of such a tensor under the names that they have apart. It reports false for others.
func (c *Checkpoint) addFused(t *stored) (bool, error) {
	for _, end := range fusedExperts {
		base, ok := strings.CutSuffix(t.name, end)
		if !ok {
			continue
		}
		if len(t.shape) != 3 || t.shape[0] > maxExperts {
			return true, fmt.Errorf("tensor %q has shape %v, not one matrix for each of up to %d experts", t.name, t.shape, maxExperts)
		}
		return true, c.splitExperts(t, base+strings.Replace(end, ".experts.", ".experts.*.", 1)+weightEnd)
	}
	return false, nil
}

// splitExperts adds each matrix of a tensor [experts, rows, cols] as a tensor; in their names, the "*" of name is the
// expert's number. A gate_up_proj is two matrices, one above the other.
func (c *Checkpoint) splitExperts(t *stored, name string) error {
	n, rows := t.shape[0], t.shape[1]
	names := []string{name}
	if strings.HasSuffix(name, ".gate_up_proj"+weightEnd) {
		if rows%2 != 0 {
			return fmt.Errorf("tensor %q has shape %v: %d rows are not those of a gate and an up projection", t.name, t.shape, rows)
		}
		base := strings.TrimSuffix(name, "gate_up_proj"+weightEnd)
		names = []string{base + "gate_proj" + weightEnd, base + "up_proj" + weightEnd}
	}
	shape := []int{rows / len(names), t.shape[2]}
	size := len(t.data) / n / len(names)
	for i := range n * len(names) {
		one := strings.Replace(names[i%len(names)], "*", strconv.Itoa(i/len(names)), 1)
		if _, twice := c.tensors[one]; twice {
			return fmt.Errorf("tensor %q stands twice", t.name)
		}
		c.tensors[one] = Tensor{name: one, kind: t.kind, shape: shape, data: t.data[i*size : (i+1)*size]}
	}
	return nil
}
