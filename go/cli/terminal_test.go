package cli

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"
)

// commandVariable makes the test program run a command line with fake engines
// instead of tests.
const commandVariable = "MINISGLTEST_COMMAND"

// runAsCommand is the command's whole process.
func runAsCommand(line string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := &program{engines: &fakeEngines{}, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, interrupts: signals}
	return run(ctx, strings.Fields(line), p)
}

// terminal is a command that runs in a pseudo-terminal.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	keys *os.File

	mu     sync.Mutex
	more   *sync.Cond
	screen string // what has been printed and not been expected yet
	ended  bool
}

// inTerminal starts a command line in a terminal of 80 columns.
func inTerminal(t *testing.T, line string, env ...string) *terminal {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append([]string{commandVariable + "=" + line, "TERM=xterm"}, env...)...)
	keys, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	c := &terminal{t: t, cmd: cmd, keys: keys}
	c.more = sync.NewCond(&c.mu)
	read := make(chan struct{})
	go c.read(read)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = keys.Close()
		<-read
	})
	return c
}

func (c *terminal) read(done chan<- struct{}) {
	defer close(done)
	buffer := make([]byte, 4096)
	for {
		n, err := c.keys.Read(buffer)
		c.mu.Lock()
		c.screen += string(buffer[:n])
		c.ended = err != nil
		c.more.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *terminal) press(keys string) {
	c.t.Helper()
	if _, err := c.keys.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

// expect waits for a text, and forgets the screen up to its end.
func (c *terminal) expect(text string) (before string) {
	c.t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !strings.Contains(c.screen, text) {
		if c.ended {
			c.t.Fatalf("%q didn't come; on the screen is %q", text, c.screen)
		}
		c.more.Wait()
	}
	before, c.screen, _ = strings.Cut(c.screen, text)
	return before
}

// exit waits for the command's end and returns its exit code.
func (c *terminal) exit() int {
	c.t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	_ = c.cmd.Wait() // the code tells
	return c.cmd.ProcessState.ExitCode()
}

// mode is how the terminal treats keys and output.
func (c *terminal) mode() term.State {
	c.t.Helper()
	state, err := term.GetState(int(c.keys.Fd()))
	if err != nil {
		c.t.Fatal(err)
	}
	return *state
}
