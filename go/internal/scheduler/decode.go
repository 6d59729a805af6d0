package scheduler

import "github.com/minisgl/minisgl/go/internal/core"

// planDecode adds one position for each running request whose prompt is computed
// and which has a token left to give. The input token of a request may still be
// on its way: then it is the one that the batch in flight gives.
func (s *Scheduler) planDecode(b *core.Batch) {
	b.Phase = core.Decode
	for _, e := range s.running {
		r := e.req
		if e.done || r.DeviceLen < r.PromptLen || r.DeviceLen >= r.MaxLen-1 {
			continue
		}
		s.pages.grow(r, r.DeviceLen+1)
		s.add(b, e, r.DeviceLen+1, true)
	}
}
