package main

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// durationFlag is a duration such as 30s. A plain number is seconds, as for flock(1) and sleep(1).
type durationFlag struct {
	value time.Duration
	isSet bool
}

// Set parses text.
func (d *durationFlag) Set(text string) error {
	value, err := time.ParseDuration(text)
	if seconds, errNumber := strconv.ParseFloat(text, 64); errNumber == nil {
		value, err = time.Duration(math.Round(seconds*1e3))*time.Millisecond, nil
		if math.IsNaN(seconds) || math.Abs(seconds) > math.MaxInt32 {
			err = strconv.ErrRange
		}
	}
	if err != nil || value < 0 {
		return fmt.Errorf("must be a time such as 30s, 5m or 1h30m, or a number of seconds")
	}
	d.value, d.isSet = value.Round(time.Millisecond), true
	return nil
}

// String returns the duration, or nothing if it is not set.
func (d *durationFlag) String() string {
	if !d.isSet && d.value == 0 {
		return ""
	}
	return d.value.String()
}

// Type is the name of the value in help texts.
func (d *durationFlag) Type() string { return "duration" }
