package main

import (
	"math"
	"math/rand/v2"
)

const (
	units = 32 // of the hidden layer
	batch = 64
)

// A model is a network with one hidden layer that learns a function of one
// variable, and the state of its training.
type model struct {
	step   int // steps done
	params map[string]*param
}

// A param is a tensor of weights, with the moments of its gradient that Adam
// keeps. The gradient itself is not saved: each step computes it from zero.
type param struct {
	shape                           []int
	weights, mean, square, gradient []float32
}

func target(x float32) float32 { return float32(math.Sin(4 * float64(x))) } // for -1 ≤ x < 1

func newModel() *model {
	m := &model{params: make(map[string]*param)}
	random := rand.New(rand.NewPCG(1, 0))
	add := func(name string, scale float64, n int, shape ...int) {
		p := &param{shape, make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)}
		for i := range p.weights {
			p.weights[i] = float32(random.NormFloat64() * scale)
		}
		m.params[name] = p
	}
	add("hidden.weight", 2, units, units, 1)
	add("hidden.bias", 1, units, units)
	add("output.weight", 1/math.Sqrt(units), units, 1, units)
	add("output.bias", 0, 1, 1)
	return m
}

// forward returns the output for x and the activations of the hidden layer.
func (m *model) forward(x float32) (y float32, hidden [units]float32) {
	y = m.params["output.bias"].weights[0]
	weight, bias := m.params["hidden.weight"].weights, m.params["hidden.bias"].weights
	for i, w := range m.params["output.weight"].weights {
		hidden[i] = float32(math.Tanh(float64(weight[i]*x + bias[i])))
		y += w * hidden[i]
	}
	return y, hidden
}

// train takes one step. Its batch depends on the number of the step alone, so a
// checkpoint needs no state of a random generator.
func (m *model) train() {
	for _, p := range m.params {
		clear(p.gradient)
	}
	random := rand.New(rand.NewPCG(1, uint64(m.step)+1))
	hiddenWeight, hiddenBias, outputWeight := m.params["hidden.weight"], m.params["hidden.bias"], m.params["output.weight"]
	for range batch {
		x := 2*random.Float32() - 1
		y, hidden := m.forward(x)
		slope := 2 * (y - target(x)) / batch // of the squared error
		m.params["output.bias"].gradient[0] += slope
		for i, h := range hidden {
			outputWeight.gradient[i] += slope * h
			inner := slope * outputWeight.weights[i] * (1 - h*h)
			hiddenWeight.gradient[i] += inner * x
			hiddenBias.gradient[i] += inner
		}
	}
	m.step++
	for _, p := range m.params {
		p.adam(m.step)
	}
}

// adam updates the weights (Kingma and Ba, arXiv:1412.6980).
func (p *param) adam(step int) {
	const rate, beta1, beta2, epsilon = 0.005, 0.9, 0.999, 1e-8
	bias1, bias2 := 1-math.Pow(beta1, float64(step)), 1-math.Pow(beta2, float64(step))
	for i, g := range p.gradient {
		p.mean[i] = beta1*p.mean[i] + (1-beta1)*g
		p.square[i] = beta2*p.square[i] + (1-beta2)*g*g
		p.weights[i] -= float32(rate * (float64(p.mean[i]) / bias1) / (math.Sqrt(float64(p.square[i])/bias2) + epsilon))
	}
}

// loss returns the mean squared error at fixed points.
func (m *model) loss() float64 {
	const points = 256
	sum := 0.0
	for i := range points {
		x := float32(i)/points*2 - 1
		y, _ := m.forward(x)
		sum += float64((y - target(x)) * (y - target(x)))
	}
	return sum / points
}
