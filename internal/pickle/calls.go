package pickle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// stackGlobal pops a module and a name, and pushes their Global.
func (u *Unpickler) stackGlobal() error {
	items, err := u.popN(2)
	if err != nil {
		return err
	}
	module, ok1 := items[0].(string)
	name, ok2 := items[1].(string)
	switch {
	case !ok1 || !ok2:
		return errors.New("the name of a global is not a string")
	case len(module) > maxName:
		return longName(module)
	case len(name) > maxName:
		return longName(name)
	}
	return u.push(Global{module, name})
}

// lines reads a Global that is written as two lines of text, its module and its name.
func (u *Unpickler) lines() (g Global, err error) {
	if g.Module, err = u.line(); err == nil {
		g.Name, err = u.line()
	}
	return g, err
}

// call returns the func of an opcode that pops n items, and calls the first item with the second, a
// tuple. It ignores a third item: arguments by name.
func call(n int) func(*Unpickler) error {
	return func(u *Unpickler) error {
		items, err := u.popN(n)
		if err != nil {
			return err
		}
		args, ok := items[1].(Tuple)
		if !ok {
			return fmt.Errorf("calling %s with %s", Describe(items[0]), Describe(items[1]))
		}
		return u.call(items[0], args)
	}
}

// object calls the first item after the mark with the items after it as arguments.
func (u *Unpickler) object() error {
	items, err := u.popMark()
	if err == nil && len(items) == 0 {
		err = errors.New("an object without a class")
	}
	if err != nil {
		return err
	}
	return u.call(items[0], slices.Clone(items[1:]))
}

// call pushes the result of calling f: a value if u knows the call, otherwise an Object that
// describes it.
func (u *Unpickler) call(f any, args Tuple) error {
	if err := u.Charge(len(args)); err != nil {
		return err
	}
	switch f := f.(type) {
	case *Object:
		return u.pushObject(&Object{Class: f.Class, Args: args})
	case Global:
		v, why := u.known(f, args)
		if err := u.chargeWhy(why); err != nil {
			return err
		}
		if v == nil || why != nil {
			if len(args) == 1 {
				if l, ok := args[0].(*List); ok { // perhaps the argument of a set, which copies the items that the list has now
					args = Tuple{&List{slices.Clip(l.Items)}}
				}
			}
			return u.pushObject(&Object{Class: f, Args: args, Why: why})
		}
		return u.push(v)
	}
	return fmt.Errorf("calling %s with %s", Describe(f), Describe(args))
}

// known returns the value of a call, or nil if u does not know f. An error gives the reason why f
// did not accept args.
func (u *Unpickler) known(f Global, args Tuple) (any, error) {
	switch f {
	case Global{"collections", "OrderedDict"}:
		return u.orderedDict(args)
	case Global{"torch", "Size"}: // torch.Size is a subclass of tuple
		if len(args) == 1 {
			if size, ok := args[0].(Tuple); ok {
				return size, nil
			}
		}
		return nil, errors.New("its argument is not a tuple")
	}
	return u.Call(f, args)
}

// orderedDict returns an empty dict, or a dict with the pairs of a list, which pickles of Python 2
// pass.
func (u *Unpickler) orderedDict(args Tuple) (any, error) {
	d := &Dict{}
	if len(args) == 0 {
		return d, nil
	}
	pairs, ok := args[0].(*List)
	if !ok || len(args) != 1 {
		return nil, errors.New("its arguments are not a list of pairs")
	}
	if err := u.Charge(2 * len(pairs.Items)); err != nil {
		return nil, err
	}
	for _, p := range pairs.Items {
		var pair []any
		switch p := p.(type) {
		case Tuple:
			pair = p
		case *List:
			pair = p.Items
		}
		if len(pair) != 2 {
			return nil, errors.New("its arguments are not a list of pairs")
		}
		if err := u.set(d, pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// chargeWhy counts the text of an error that an Object is about to keep. If why is nil, it still
// fails if Call ignored an error of Charge.
func (u *Unpickler) chargeWhy(why error) error {
	text := ""
	if why != nil {
		text = why.Error()
	}
	return u.Charge(len(text) / elementSize)
}

// build pops a state and sets it on the object below. Attributes of a dict, such as _metadata of a
// state dict, are dropped. Attributes of other values could change their meaning, so they are an
// error unless u.Build accepts them.
func (u *Unpickler) build() error {
	items, err := u.popN(2)
	if err != nil {
		return err
	}
	switch v := items[0].(type) {
	case *Object:
		if v.State != nil {
			return fmt.Errorf("setting the state of %s again", Describe(v))
		}
		if v.State, err = u.copied(items[1]); err != nil {
			return err
		}
	case *Dict, Global:
	default:
		if u.Build == nil || !u.Build(v, items[1]) {
			return fmt.Errorf("setting attributes of %s", Describe(v))
		}
	}
	return u.push(items[0])
}

// copied returns a copy of v if it is a dict, since Python copies its present entries into the
// attributes of an object. It returns any other value unchanged.
func (u *Unpickler) copied(v any) (any, error) {
	d, ok := v.(*Dict)
	if !ok {
		return v, nil
	}
	const perEntry = 4 // an entry of the map byName takes two more words
	if err := u.Charge(perEntry * len(d.Entries)); err != nil {
		return nil, err
	}
	clone := &Dict{Entries: slices.Clone(d.Entries)}
	if k := d.keys; k != nil {
		clone.keys = &keys{maps.Clone(k.byName), k.odd}
	}
	return clone, nil
}

// persist pops a persistent id, and pushes the value that it refers to, or an Object with the error
// if there is none.
func (u *Unpickler) persist() error {
	id, err := u.pop()
	if err != nil {
		return err
	}
	v, why := u.Persistent(id)
	if err := u.chargeWhy(why); err != nil {
		return err
	}
	if why != nil {
		return u.pushObject(&Object{Class: Global{"persistent", "id"}, Why: why})
	}
	return u.push(v)
}
