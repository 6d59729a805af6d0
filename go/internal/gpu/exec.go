package gpu

import (
	"os"
	"path/filepath"
	"syscall"
)

// Declined is why Exec has not gone on as Program though that is there; nil if it is not.
var Declined error

// Exec goes on as Program if there is a GPU and that program; else it returns.
// With a GPU and without the program, the CPU does.
func Exec() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(self), Program)
	if _, err := os.Stat(program); err != nil {
		return nil
	}
	if _, Declined = Count(); Declined != nil {
		return nil
	}
	return syscall.Exec(program, os.Args, os.Environ())
}
