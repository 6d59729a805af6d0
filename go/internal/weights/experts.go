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

// addExperts adds the matrices of a tensor [experts, rows, cols] as a tensor each; in their names, the "*" of name is
// the expert's number.
func (c *Checkpoint) addExperts(t *stored, name string, settings *settings) error {
	n, err := settings.experts()
	if err != nil {
		return err
	}
	if len(t.shape) != 3 || t.shape[0] != n {
		return fmt.Errorf("tensor %q has shape %v, not one matrix for each of %d experts", t.name, t.shape, n)
	}
	size := len(t.data) / n
	for e := range n {
		one := strings.Replace(name, "*", strconv.Itoa(e), 1)
		if _, twice := c.tensors[one]; twice {
			return fmt.Errorf("tensor %q stands twice", t.name)
		}
		c.tensors[one] = Tensor{name: one, kind: t.kind, shape: t.shape[1:], data: t.data[e*size : (e+1)*size]}
	}
	return nil
}
