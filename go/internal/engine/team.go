package engine

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// exchanger is a device that gathers from those of other ranks by itself.
type exchanger interface{ Exchanges() bool }

// exchange reports whether all devices gather by themselves.
func exchange(devs []device.Device) bool {
	return !slices.ContainsFunc(devs, func(dev device.Device) bool {
		x, ok := dev.(exchanger)
		return !ok || !x.Exchanges()
	})
}

// team runs one list on each of several devices that gather by themselves. Each has a
// goroutine and an OS thread of its own, since one may wait in Submit for the others.
type team struct {
	calls   []chan call
	results chan error
	members sync.WaitGroup
	broken  error // why the ranks no longer run the same lists
}

// call is what a member is to do: to submit a list, or to wait if there is none.
type call struct{ list *ops.List }

func newTeam(devs []device.Device) *team {
	t := &team{results: make(chan error, len(devs))}
	for i, dev := range devs {
		calls := make(chan call)
		t.calls = append(t.calls, calls)
		t.members.Go(func() { t.serve(i, dev, calls) })
	}
	return t
}

func (t *team) serve(rank int, dev device.Device, calls chan call) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for c := range calls {
		var err error
		if c.list != nil {
			err = dev.Submit(c.list)
		} else {
			err = dev.Wait()
		}
		if err != nil {
			err = fmt.Errorf("rank %d: %w", rank, err)
		}
		t.results <- err
	}
}

// collect waits until every member has done what it was called for.
func (t *team) collect() error {
	var errs []error
	for range t.calls {
		errs = append(errs, <-t.results)
	}
	return errors.Join(errs...)
}

// Submit implements runner.
func (t *team) Submit(lists []*ops.List) error {
	if t.broken != nil {
		return fmt.Errorf("an earlier batch has parted the ranks: %w", t.broken)
	}
	for i, calls := range t.calls {
		calls <- call{lists[i]}
	}
	t.broken = t.collect()
	return t.broken
}

// Wait implements runner.
func (t *team) Wait() error {
	for _, calls := range t.calls {
		calls <- call{}
	}
	return t.collect()
}

// Close implements runner.
func (t *team) Close() {
	for _, calls := range t.calls {
		close(calls)
	}
	t.members.Wait()
}
