package main

import (
	"math"
	"math/rand/v2"
)

// A model is a network of one hidden layer that learns a function of one
// variable, together with the state of its training.
type model struct {
	step   int // steps of training done
	params []*param

	hiddenWeight, hiddenBias, outputWeight, outputBias *param // those of params
}

// A param is a tensor that is learned, with what Adam keeps for each of its
// elements.
type param struct {
	name     string
	shape    []int
	weights  []float32
	moment1  []float32 // mean of the gradient
	moment2  []float32 // mean of its square
	gradient []float32 // of this step; not saved, as each step begins with zeros
}

const (
	units = 32 // of the hidden layer
	batch = 64
	seed  = 1
)

func target(x float32) float32 { return float32(math.Sin(4 * float64(x))) } // for -1 ≤ x < 1

func newModel() *model {
	m := &model{}
	random := rand.New(rand.NewPCG(seed, 0))
	add := func(name string, scale float64, shape ...int) *param {
		n := 1
		for _, dim := range shape {
			n *= dim
		}
		p := &param{name: name, shape: shape}
		for _, s := range []*[]float32{&p.weights, &p.moment1, &p.moment2, &p.gradient} {
			*s = make([]float32, n)
		}
		for i := range p.weights {
			p.weights[i] = float32(random.NormFloat64() * scale)
		}
		m.params = append(m.params, p)
		return p
	}
	m.hiddenWeight = add("hidden.weight", 2, units, 1)
	m.hiddenBias = add("hidden.bias", 1, units)
	m.outputWeight = add("output.weight", 1/math.Sqrt(units), 1, units)
	m.outputBias = add("output.bias", 0, 1)
	return m
}

// forward returns the output for x, and leaves the activations in hidden.
func (m *model) forward(x float32, hidden *[units]float32) float32 {
	y := m.outputBias.weights[0]
	for i := range hidden {
		hidden[i] = float32(math.Tanh(float64(m.hiddenWeight.weights[i]*x + m.hiddenBias.weights[i])))
		y += m.outputWeight.weights[i] * hidden[i]
	}
	return y
}

// train makes one step with a batch that depends on nothing but the number of
// the step: so there is no state of a generator that would have to be saved.
func (m *model) train() {
	random := rand.New(rand.NewPCG(seed, uint64(m.step)+1))
	for _, p := range m.params {
		clear(p.gradient)
	}
	for range batch {
		x := 2*random.Float32() - 1
		var hidden [units]float32
		slope := 2 * (m.forward(x, &hidden) - target(x)) / batch // of the squared error
		m.outputBias.gradient[0] += slope
		for i, h := range hidden {
			m.outputWeight.gradient[i] += slope * h
			inner := slope * m.outputWeight.weights[i] * (1 - h*h)
			m.hiddenWeight.gradient[i] += inner * x
			m.hiddenBias.gradient[i] += inner
		}
	}
	m.step++
	for _, p := range m.params {
		p.adam(m.step)
	}
}

// adam changes the values as the gradient says (Kingma and Ba, arXiv:1412.6980).
func (p *param) adam(step int) {
	const rate, beta1, beta2, epsilon = 0.005, 0.9, 0.999, 1e-8
	bias1 := 1 - math.Pow(beta1, float64(step))
	bias2 := 1 - math.Pow(beta2, float64(step))
	for i, g := range p.gradient {
		p.moment1[i] = beta1*p.moment1[i] + (1-beta1)*g
		p.moment2[i] = beta2*p.moment2[i] + (1-beta2)*g*g
		mean, square := float64(p.moment1[i])/bias1, float64(p.moment2[i])/bias2
		p.weights[i] -= float32(rate * mean / (math.Sqrt(square) + epsilon))
	}
}

// loss returns the mean squared error at fixed points.
func (m *model) loss() float64 {
	const points = 256
	sum := 0.0
	var hidden [units]float32
	for i := range points {
		x := float32(i)/points*2 - 1
		d := float64(m.forward(x, &hidden) - target(x))
		sum += d * d
	}
	return sum / points
}
