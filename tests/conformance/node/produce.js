// kafkajs as a producer: produce BOOTSTRAP TOPIC RECORDS. The records are those of ../records.py.
// kafkajs has gzip; the others are handed to it as its documentation describes, from pure
// JavaScript packages, since its own lz4 and zstd companions build native code on installation.
"use strict";

const { createHash } = require("node:crypto");
const {
  CompressionCodecs,
  CompressionTypes,
  Kafka,
  Partitioners,
  logLevel,
} = require("kafkajs");
const snappy = require("kafkajs-snappy");
const lz4 = require("lz4js");
const xxh32 = require("lz4js/xxh32.js");
const { ZstdCodec } = require("zstd-codec");

const CODECS = ["none", "gzip", "snappy", "lz4", "zstd"];
const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};
const CHUNK = 500;
const LZ4_BLOCKS_INDEPENDENT = 0x20;

// lz4js writes one block up to 4 MB and does not say that it depends on no other, as Kafka asks.
function lz4Frame(data) {
  const frame = Buffer.from(lz4.compress(data));
  frame[4] |= LZ4_BLOCKS_INDEPENDENT;
  frame[6] = (xxh32.hash(0, frame, 4, 2) >> 8) & 0xff;
  return frame;
}

function register(zstd) {
  const simple = new zstd.Simple();
  CompressionCodecs[CompressionTypes.Snappy] = snappy;
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async (encoder) => lz4Frame(encoder.buffer),
    decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
  });
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(simple.compress(encoder.buffer, 3)),
    decompress: async (buffer) => Buffer.from(simple.decompress(buffer)),
  });
}

function record(i, codec) {
  const hash = createHash("sha256").update(String(i)).digest();
  const value = Buffer.concat(Array.from({ length: (i % 32) + 1 }, () => hash));
  const n = i % 5 === 0 ? [String(i), ""] : String(i);
  return { partition: i % 3, key: `key-${i}`, value, headers: { codec, n } };
}

async function produce(bootstrap, topic, count) {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
  // The default partitioner, named: unnamed, kafkajs prints a warning about it.
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  for (const [number, codec] of CODECS.entries()) {
    const start = Math.ceil((number * count) / 5);
    const end = Math.ceil(((number + 1) * count) / 5);
    for (let from = start; from < end; from += CHUNK) {
      const messages = [];
      for (let i = from; i < Math.min(from + CHUNK, end); i += 1) messages.push(record(i, codec));
      await producer.send({ topic, compression: TYPES[codec], messages });
    }
  }
  await producer.disconnect();
}

async function main() {
  const [verb, bootstrap, topic, records] = process.argv.slice(2);
  if (verb !== "produce") throw new Error("kafkajs can only produce here: it cannot assign");
  register(await new Promise((resolve) => ZstdCodec.run(resolve)));
  await produce(bootstrap, topic, Number(records));
  console.log(JSON.stringify({ records: Number(records), digests: [] }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
