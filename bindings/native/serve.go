package native

import (
	"context"
	"os"

	"github.com/minisgl/minisgl/go/cli"
)

// Serve starts the command line that args (a JSON list of strings) says, as the
// minisgl program would. Cancel lets a server drain. The job's result is the
// exit code.
func Serve(args string) (job int64, err error) {
	defer guard(&err)
	var list []string
	if err := decode(args, &list); err != nil {
		return 0, err
	}
	return start(func(ctx context.Context, _ *task) (any, error) {
		return cli.Run(ctx, list, os.Stdin, os.Stdout, os.Stderr), nil
	}, nil), nil
}
