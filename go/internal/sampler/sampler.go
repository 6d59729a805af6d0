// Package sampler turns a request's sampling parameters into the arguments of
// the device's Sample operation. The filters and the random numbers themselves
// are the devices' (see ops.Sampling and ops.List.Sample).
package sampler

import (
	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// Args returns the arguments for the token at a position of a request's
// sequence.
func Args(r *core.Req, position int) ops.Sampling {
	p := r.Params
	a := ops.Sampling{TopP: 1, Slot: int32(r.Slot), Position: uint32(position)}
	if p.Greedy() {
		return a
	}
	a.Temperature = float32(p.Temperature)
	a.TopP = float32(p.TopP)
	a.MinP = float32(p.MinP)
	a.TopK = int32(min(p.TopK, 1<<30))
	if p.Seed != nil {
		a.SeedLo, a.SeedHi = uint32(*p.Seed), uint32(*p.Seed>>32)
	}
	return a
}

// Seed derives the seed of a request that brought none from the engine's seed
// and the request's number (SplitMix64, Steele et al., 2014).
func Seed(engine uint64, uid core.UID) uint64 {
	z := engine + uint64(uid)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
