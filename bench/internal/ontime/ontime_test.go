package ontime

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// On a fake clock a wait ends at its time to the nanosecond, however many wait.
func TestWaitIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for turn := 1; turn <= 5; turn++ {
					at := begin.Add(time.Duration(turn) * time.Duration(1000+i) * time.Microsecond)
					if !Wait(t.Context(), at) || !time.Now().Equal(at) {
						t.Errorf("waited until %v, want %v", time.Since(begin), at.Sub(begin))
					}
				}
			})
		}
		wg.Wait()
		if !Wait(t.Context(), begin) || time.Since(begin) != 5*1019*time.Microsecond {
			t.Errorf("a time that has passed was waited for until %v", time.Since(begin))
		}
	})
}

// On the real clock a wait is never too short.
func TestWaitIsNotEarly(t *testing.T) {
	for wait := time.Microsecond; wait < 10*time.Millisecond; wait *= 3 {
		at := time.Now().Add(wait)
		if !Wait(t.Context(), at) || time.Now().Before(at) {
			t.Errorf("a wait of %v ended %v early", wait, time.Until(at))
		}
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if Wait(ctx, begin.Add(time.Hour)) || time.Since(begin) != time.Second {
			t.Errorf("waited %v for a context that ended after a second", time.Since(begin))
		}
		if Wait(ctx, begin) {
			t.Error("a context that has ended was not seen")
		}
	})
}
