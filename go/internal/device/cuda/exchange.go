//go:build cuda || amd64

package cuda

import kernels "github.com/minisgl/minisgl/kernels/cuda"

// Exchange is how a device exchanges what it has computed with those of the other ranks of
// a model. All run the same lists in the same order, each in a goroutine of its own.
type Exchange struct {
	kernels.Exchange

	// Abort ends the exchange for all ranks, since this one can't go on: none waits for it.
	// Aborted reports whether one did.
	Abort   func()
	Aborted func() bool
	// Close gives it up.
	Close func()
}

// UseExchange makes the device one of several ranks. No list may be in flight.
func (d *Device) UseExchange(x Exchange) { d.exchange = x }

// Exchanges reports whether lists may gather from other ranks.
func (d *Device) Exchanges() bool { return d.exchange.Ranks > 1 }

// fail tells the other ranks that a list could not be submitted as a whole.
func (d *Device) fail(err error) {
	if err != nil && d.Exchanges() {
		d.exchange.Abort()
	}
}
