package main

import (
	"math"
	"math/rand/v2"
)

const terms = 8 // number of waves in the sum that the model computes

// A model learns a function of one variable as a sum of waves, and holds the state of its
// training.
type model struct {
	step   int // number of steps done
	params map[string]*param
}

// A param is a tensor of weights, with their gradient and the momentum of the optimizer. The
// gradient is not saved, because each step computes it anew.
type param struct {
	shape                       []int
	weights, momentum, gradient []float32
}

// target returns the value that the model learns for x, where -1 ≤ x < 1.
func target(x float64) float64 { return x*x + x }

func newModel() *model {
	m := &model{params: make(map[string]*param)}
	for name, shape := range map[string][]int{"waves.weight": {1, terms}, "bias": {1}} {
		n := shape[len(shape)-1]
		m.params[name] = &param{shape, make([]float32, n), make([]float32, n), make([]float32, n)}
	}
	return m
}

// wave returns the value of term i of the sum for x, before it is multiplied by its weight.
func wave(i int, x float64) float64 { return math.Sin(float64(i+1)*x + float64(i%2)) }

// output returns the value of the model for x.
func (m *model) output(x float64) float64 {
	y := float64(m.params["bias"].weights[0])
	for i, w := range m.params["waves.weight"].weights {
		y += float64(w) * wave(i, x)
	}
	return y
}

// train takes one step. Its batch depends only on the number of the step, so that a checkpoint need
// not contain the state of a random generator.
func (m *model) train() {
	const batch, rate, decay = 64, 0.05, 0.9
	for _, p := range m.params {
		clear(p.gradient)
	}
	random := rand.New(rand.NewPCG(1, uint64(m.step)))
	for range batch {
		x := 2*random.Float64() - 1
		slope := 2 * (m.output(x) - target(x)) / batch // derivative of the squared error
		m.params["bias"].gradient[0] += float32(slope)
		for i := range terms {
			m.params["waves.weight"].gradient[i] += float32(slope * wave(i, x))
		}
	}
	m.step++
	for _, p := range m.params {
		for i, g := range p.gradient {
			p.momentum[i] = decay*p.momentum[i] + g
			p.weights[i] -= rate * p.momentum[i]
		}
	}
}

// loss returns the mean squared error at fixed points.
func (m *model) loss() (sum float64) {
	const points = 256
	for i := range points {
		x := float64(i)/points*2 - 1
		d := m.output(x) - target(x)
		sum += d * d / points
	}
	return sum
}
