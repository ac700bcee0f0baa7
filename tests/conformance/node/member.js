// kafkajs: a member of a group, see ../members/lines.py. It has no static members.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const SESSION_MS = 6000;
const HEARTBEAT_MS = 500;

function tell(line) {
  console.log(JSON.stringify({ t: Date.now(), ...line }));
}

async function main() {
  const [bootstrap, topic, groupId] = process.argv.slice(2);
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const consumer = kafka.consumer({
    groupId,
    sessionTimeout: SESSION_MS,
    rebalanceTimeout: 10000,
    heartbeatInterval: HEARTBEAT_MS,
    maxWaitTimeInMs: 200,
  });
  let own = [];
  const lose = () => {
    if (own.length) tell({ event: "revoked", partitions: own });
    own = [];
  };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    lose();
    own = payload.memberAssignment[topic] || [];
    tell({ event: "assigned", partitions: own });
  });
  consumer.on(consumer.events.REBALANCING, lose);
  process.on("SIGTERM", async () => {
    lose();
    await consumer.disconnect();
    process.exit(0);
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      const last = batch.lastOffset();
      const { partition } = batch;
      const offset = (BigInt(last) + 1n).toString();
      await consumer.commitOffsets([{ topic, partition, offset }]);
      const at = batch.messages.map((message) => [partition, Number(message.offset)]);
      tell({ event: "read", at });
    },
  });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
