package engine

import (
	"slices"
	"testing"
)

func TestGraphSizes(t *testing.T) {
	for _, c := range []struct {
		most int
		want []int
	}{
		{0, nil}, {1, []int{1}}, {2, []int{1, 2}}, {5, []int{1, 2, 4, 5}}, {8, []int{1, 2, 4, 8}}, {20, []int{1, 2, 4, 8, 16, 20}}, {32, []int{1, 2, 4, 8, 16, 24, 32}},
	} {
		if got := GraphSizes(c.most); !slices.Equal(got, c.want) {
			t.Errorf("up to %d: %v, want %v", c.most, got, c.want)
		}
	}
	sizes := GraphSizes(20)
	for n, want := range map[int]int{1: 1, 2: 2, 3: 4, 5: 8, 17: 20, 20: 20, 21: 21, 100: 100} {
		if got := padded(sizes, n); got != want {
			t.Errorf("%d requests are padded to %d, want %d", n, got, want)
		}
	}
	for _, c := range []struct{ sizes, want []int }{{nil, nil}, {[]int{8, 1, 3}, []int{1, 3, 8}}, {[]int{1, 16, 32, 64}, []int{1, 16, 20}}} {
		if got := (Config{MaxRunning: 20, GraphSizes: c.sizes}).graphSizes(); !slices.Equal(got, c.want) {
			t.Errorf("%v for 20 requests: %v, want %v", c.sizes, got, c.want)
		}
	}
	if got := padded(nil, 3); got != 3 {
		t.Errorf("without graphs 3 requests are padded to %d", got)
	}
}

func TestTableWidth(t *testing.T) {
	for _, c := range []struct{ pages, least, most, want int }{
		{0, 0, 100, 1}, {3, 0, 100, 4}, {65, 0, 100, 100}, {3, 8, 100, 8}, {9, 8, 100, 16}, {3, 128, 100, 100},
	} {
		if got := tableWidth(c.pages, c.least, c.most); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
