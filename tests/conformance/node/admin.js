// kafkajs: every call of its admin client but those for ACLs, against a broker of one node that
// answers as Apache Kafka 4.3.1 does: admin.js BOOTSTRAP. It prints how many calls were made.
"use strict";

const assert = require("node:assert/strict");
const { AssignerProtocol, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

const TOPIC = "made-by-kafkajs-admin";
const OTHER = "not-made-by-kafkajs-admin";
const GROUP = "made-by-kafkajs-admin";
const NON_EMPTY_GROUP = 68;
const GROUP_ID_NOT_FOUND = 69;

let calls = 0;

// The admin client, its calls counted.
function counted(admin) {
  return new Proxy(admin, {
    get(target, name) {
      calls += 1;
      return target[name];
    },
  });
}

const offsetsOf = (entries) =>
  Object.fromEntries(entries.map(({ partition, offset }) => [partition, offset]));

async function topics(admin, bootstrap) {
  const { brokers, controller, clusterId } = await admin.describeCluster();
  const [host, port] = bootstrap.split(":");
  const nodeId = brokers[0].nodeId;
  assert.deepEqual(brokers, [{ nodeId, host, port: Number(port) }]);
  assert.equal(controller, nodeId);
  assert.equal(clusterId.length, 22);

  const configEntries = [{ name: "retention.ms", value: "3600000" }];
  const made = { topics: [{ topic: TOPIC, numPartitions: 2, configEntries }] };
  assert.equal(await admin.createTopics({ ...made, validateOnly: true, waitForLeaders: false }), true);
  assert.equal((await admin.listTopics()).includes(TOPIC), false);
  assert.equal(await admin.createTopics(made), true);
  assert.equal(await admin.createTopics(made), false);
  assert.equal((await admin.listTopics()).includes(TOPIC), true);
  await admin.createPartitions({ topicPartitions: [{ topic: TOPIC, count: 3 }] });
  const described = await admin.fetchTopicMetadata({ topics: [TOPIC] });
  const [{ name, partitions }] = described.topics;
  assert.equal(name, TOPIC);
  assert.deepEqual(partitions.map((one) => one.partitionId).sort(), [0, 1, 2]);
  for (const one of partitions) {
    assert.deepEqual([one.leader, one.replicas, one.isr], [nodeId, [nodeId], [nodeId]]);
  }
  await assert.rejects(admin.fetchTopicMetadata({ topics: [OTHER] }), {
    type: "UNKNOWN_TOPIC_OR_PARTITION",
  });

  const moved = [{ topic: TOPIC, partitionAssignment: [{ partition: 0, replicas: [nodeId] }] }];
  await admin.alterPartitionReassignments({ topics: moved });
  assert.deepEqual((await admin.listPartitionReassignments({})).topics, []);
}

async function configs(admin) {
  const resource = { type: ConfigResourceTypes.TOPIC, name: TOPIC };
  const asked = { ...resource, configNames: ["retention.ms"] };
  const retention = async () => {
    const answer = await admin.describeConfigs({ resources: [asked], includeSynonyms: false });
    const [{ resourceName, configEntries }] = answer.resources;
    assert.equal(resourceName, TOPIC);
    assert.deepEqual(configEntries.map((one) => one.configName), ["retention.ms"]);
    return [configEntries[0].configValue, configEntries[0].isDefault];
  };
  assert.deepEqual(await retention(), ["3600000", false]);
  const change = (name, value, validateOnly) =>
    admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name, value }] }], validateOnly });
  await change("retention.ms", "7200000", true);
  assert.deepEqual(await retention(), ["3600000", false]);
  await change("retention.ms", "7200000", false);
  assert.deepEqual(await retention(), ["7200000", false]);
  await change("segment.ms", "7200000", false);
  assert.deepEqual(await retention(), ["604800000", true]);
  await assert.rejects(change("retention.ms", "soon", false), { type: "INVALID_CONFIG" });
}

async function offsets(kafka, admin) {
  const producer = kafka.producer();
  await producer.connect();
  const now = Date.now();
  const messages = [0, 1000, 2000].map((late) => ({
    partition: 0,
    timestamp: String(now + late),
    value: String(late),
  }));
  await producer.send({ topic: TOPIC, messages });
  await producer.disconnect();
  const places = (await admin.fetchTopicOffsets(TOPIC)).sort((a, b) => a.partition - b.partition);
  assert.deepEqual(places[0], { partition: 0, offset: "3", high: "3", low: "0" });
  assert.deepEqual(places[2], { partition: 2, offset: "0", high: "0", low: "0" });
  const byTime = async (at) => offsetsOf(await admin.fetchTopicOffsetsByTimestamp(TOPIC, at));
  assert.deepEqual(await byTime(now + 1), { 0: "1", 1: "0", 2: "0" });
  assert.deepEqual(await byTime(now + 2001), { 0: "3", 1: "0", 2: "0" });
  await admin.deleteTopicRecords({ topic: TOPIC, partitions: [{ partition: 0, offset: "1" }] });
  const beyond = admin.deleteTopicRecords({
    topic: TOPIC,
    partitions: [{ partition: 0, offset: "9" }],
  });
  await assert.rejects(beyond, (error) => {
    return error.cause.partitions[0].error.type === "OFFSET_OUT_OF_RANGE";
  });
  assert.equal((await admin.fetchTopicOffsets(TOPIC)).find((one) => one.partition === 0).low, "1");
}

async function committed(admin, groupId) {
  const [{ topic, partitions }] = await admin.fetchOffsets({ groupId, topics: [TOPIC] });
  assert.equal(topic, TOPIC);
  return offsetsOf(partitions);
}

// For both of these it joins a group, is given all partitions, and commits.
async function offsetsSet(admin) {
  const groupId = `${GROUP}-set`;
  assert.deepEqual(await committed(admin, groupId), { 0: "-1", 1: "-1", 2: "-1" });
  const partitions = [
    { partition: 0, offset: "2" },
    { partition: 1, offset: "0" },
  ];
  await admin.setOffsets({ groupId, topic: TOPIC, partitions });
  assert.deepEqual(await committed(admin, groupId), { 0: "2", 1: "0", 2: "-1" });
  await admin.deleteGroups([groupId]);
}

async function offsetsReset(admin) {
  const groupId = `${GROUP}-reset`;
  await admin.resetOffsets({ groupId, topic: TOPIC, earliest: true });
  // It commits its number for the earliest, which its consumers resolve.
  assert.deepEqual(await committed(admin, groupId), { 0: "-2", 1: "-2", 2: "-2" });
  await admin.deleteGroups([groupId]);
}

async function groups(kafka, admin) {
  const consumer = kafka.consumer({ groupId: GROUP, maxWaitTimeInMs: 100 });
  const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
  await consumer.connect();
  await consumer.subscribe({ topics: [TOPIC] });
  await consumer.run({ autoCommit: false, eachMessage: async () => {} });
  const { payload } = await joined;
  const listed = (await admin.listGroups()).groups.find((one) => one.groupId === GROUP);
  assert.deepEqual(listed, { groupId: GROUP, protocolType: "consumer" });
  const [group] = (await admin.describeGroups([GROUP])).groups;
  assert.deepEqual(
    [group.errorCode, group.groupId, group.state, group.protocolType, group.protocol],
    [0, GROUP, "Stable", "consumer", "RoundRobinAssigner"],
  );
  const [member] = group.members;
  assert.deepEqual(
    [group.members.length, member.memberId, member.clientId, member.clientHost],
    [1, payload.memberId, "admin", "/127.0.0.1"],
  );
  const { assignment } = AssignerProtocol.MemberAssignment.decode(member.memberAssignment);
  assert.deepEqual(assignment[TOPIC].sort(), [0, 1, 2]);
  const refusal = (code) => (error) => error.groups[0].errorCode === code;
  await assert.rejects(admin.deleteGroups([GROUP]), refusal(NON_EMPTY_GROUP));
  await consumer.disconnect();
  const deleted = await admin.deleteGroups([GROUP]);
  assert.deepEqual(deleted.map(({ groupId, errorCode }) => [groupId, errorCode]), [[GROUP, 0]]);
  await assert.rejects(admin.deleteGroups([GROUP]), refusal(GROUP_ID_NOT_FOUND));
}

async function main() {
  const [bootstrap] = process.argv.slice(2);
  const kafka = new Kafka({ brokers: [bootstrap], clientId: "admin", logLevel: logLevel.NOTHING });
  const admin = counted(kafka.admin());
  await admin.connect();
  await topics(admin, bootstrap);
  await configs(admin);
  await offsets(kafka, admin);
  await Promise.all([offsetsSet(admin), offsetsReset(admin), groups(kafka, admin)]);
  await admin.deleteTopics({ topics: [TOPIC] });
  assert.equal((await admin.listTopics()).includes(TOPIC), false);
  await admin.disconnect();
  console.log(`${calls} calls`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
