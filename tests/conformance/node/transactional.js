// kafkajs: a transactional client, BOOTSTRAP TRANSACTIONAL_ID; see ../transactional/commands.py.
// Its consumers cannot assign, so a reader is the only member of a group of its own.
"use strict";

const readline = require("node:readline");
const { Kafka, Partitioners, logLevel } = require("kafkajs");

const END = "end";
const TAKE = 20;
// Twenty seconds and more in all, for a broker that was killed.
const RETRY = { initialRetryTime: 100, maxRetryTime: 1000, retries: 30 };

class Transactional {
  async connect(bootstrap, name) {
    this.name = name;
    this.kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: RETRY });
    this.producer = this.kafka.producer({
      transactionalId: name,
      idempotent: true,
      maxInFlightRequests: 1,
      createPartitioner: Partitioners.DefaultPartitioner,
    });
    await this.producer.connect();
    await this.begin(); // the first transaction initializes them
    await this.abort();
  }

  async begin() {
    this.transaction = await this.producer.transaction();
  }

  async send(topic, partition, ...values) {
    const messages = values.map((value) => ({ partition: Number(partition), value }));
    await this.transaction.send({ topic, messages });
  }

  async commit() {
    await this.transaction.commit();
  }

  async abort() {
    await this.transaction.abort();
  }

  async read(isolation, topic, partitions) {
    const group = `reader-${this.name}-${topic}-${isolation}`;
    const values = [];
    let ended = 0;
    await this.consume(group, topic, isolation === "uncommitted", async ({ batch, resolveOffset }) => {
      for (const message of batch.messages) {
        values.push([batch.partition, message.value.toString()]);
        ended += message.value.toString() === END;
        resolveOffset(message.offset);
      }
      return ended >= Number(partitions);
    });
    return values;
  }

  async transform(source, sink, group, partitions) {
    let aborted = false;
    let ended = 0;
    await this.consume(group, source, false, async ({ batch, resolveOffset }) => {
      const { partition } = batch;
      for (let from = 0; from < batch.messages.length; from += TAKE) {
        const taken = batch.messages.slice(from, from + TAKE);
        const values = taken.map((message) => message.value.toString());
        const offset = String(BigInt(taken[taken.length - 1].offset) + 1n);
        await this.begin();
        await this.send(sink, 0, ...values.map((value) => `${value}'`));
        await this.transaction.sendOffsets({
          consumerGroupId: group,
          topics: [{ topic: source, partitions: [{ partition, offset }] }],
        });
        if (!aborted) {
          await this.abort();
          aborted = true;
          return false; // nothing is resolved: the batch comes again
        }
        await this.commit();
        resolveOffset(taken[taken.length - 1].offset);
        ended += values.filter((value) => value === END).length;
      }
      return ended >= Number(partitions);
    });
  }

  // Hands batches to `each` until that says true.
  async consume(groupId, topic, readUncommitted, each) {
    const consumer = this.kafka.consumer({ groupId, readUncommitted, maxWaitTimeInMs: 100 });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
      const eachBatch = async (given) => {
        if (await each(given)) resolve();
      };
      consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch }).catch(reject);
    });
    await consumer.disconnect();
  }
}

async function answer(action) {
  let error = "";
  let values = [];
  try {
    values = (await action()) || [];
  } catch (raised) {
    error = `${raised.name}: ${raised.message}`;
  }
  console.log(JSON.stringify({ error, values }));
  return error === "";
}

async function main() {
  const [bootstrap, name] = process.argv.slice(2);
  const client = new Transactional();
  if (await answer(() => client.connect(bootstrap, name))) {
    for await (const line of readline.createInterface({ input: process.stdin })) {
      const [verb, ...rest] = line.split(" ");
      await answer(() => client[verb](...rest));
    }
  }
  process.exit(0);
}

main();
