module github.com/minisgl/minisgl/go

go 1.26

require (
	github.com/ardanlabs/jinja v1.8.0
	github.com/daulet/tokenizers v1.24.0
	github.com/google/go-cmp v0.7.0
	github.com/minisgl/minisgl/kernels v0.0.0
	github.com/spf13/cobra v1.10.2
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.50.0
	pgregory.net/rapid v1.3.0
)

replace github.com/minisgl/minisgl/kernels => ../kernels
