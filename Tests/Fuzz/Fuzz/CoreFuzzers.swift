// The rules of both ends of the protocol, each against an other end that says anything in any order.

let coreFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "relay", maximum: 4_096,
        seeds: {
            // Two join and confirm, one asks, talks and releases, the other reports and asks for packets.
            let bursts: [UInt8] = [17, 1, 0, 1, 0, 16, 1, 0, 10, 40, 0, 17, 1, 0, 0, 2, 0]
            let talk: [UInt8] = [4, 0, 1, 5, 0, 1, 6, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]
            let joins: [UInt8] = [0, 0, 3, 0, 0, 0, 1, 3, 1, 1]
            return [
                joined([0, 0, 0, 0, 1], joins, talk), joined([1, 1, 1, 1, 0], joins, talk, bursts, [10, 8, 0], talk),
                joined([2, 0, 1, 0, 1, 1, 0, 3, 0, 0, 2, 0, 0], talk, [12, 0, 0, 12, 0, 3, 1, 1]),
            ]
        }
    ) { bytes in
        var world = RelayWorld(bytes)
        world.run()
    },
    Fuzzer(
        name: "relay-client", maximum: 4_096,
        seeds: {
            let join: [UInt8] = [0, 0, 2, 5, 0, 0, 0, 0, 2, 0]
            let talk: [UInt8] = [15, 0, 15, 252, 7, 0, 255, 255, 15, 4, 19, 1, 1, 15, 2, 16, 40, 0, 0]
            let ask: [UInt8] = [20, 0, 22, 1, 0, 0, 0, 5, 5, 3, 0, 0, 20, 1, 0, 0, 21, 1, 0, 0, 0, 0, 0, 1, 0, 1]
            // Outside QUIC: four packets; a report that has all up to the last one, or none but the last one.
            let joinOutside = joined([2], Array(join.dropFirst()))
            let talkOutside: [UInt8] = [15, 0, 7, 0, 255, 255, 15, 28]
            let report = joined([0xF0, 0], [UInt8](repeating: 0xFF, count: 8))
            let gap = joined([0xF0, 0], [UInt8](repeating: 0, count: 8))
            // Long enough for the relay to be asked, and then for the media to go in datagrams.
            let (unanswered, blocked): ([UInt8], [UInt8]) = ([16, 6, 64, 0], [0xF1, 1, 20, 16, 7, 208, 0])
            let listen: [UInt8] = [11, 0, 0, 0, 0, 13, 7, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 1]
            return [
                joined(join, talk, listen), joined(join, listen, ask, [23, 2, 0, 10]),
                joined([1], Array(join.dropFirst()), listen, talk, [3, 1, 16, 40, 0, 0, 2], join),
                joined(joinOutside, talkOutside, report, [15, 28], gap, unanswered, report, [15, 28, 15, 2]),
                joined(joinOutside, talkOutside, unanswered, blocked, [15, 28, 19, 0, 0, 15, 2], listen),
                joined(joinOutside, talkOutside, [16, 15, 160, 0], report, [3, 1, 16, 40, 0, 0, 2], join, talk),
            ]
        }
    ) { bytes in
        var world = ClientWorld(bytes)
        world.run()
    },
]
