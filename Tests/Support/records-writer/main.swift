// Changes a relay's records at random until it is killed, and says on standard output what it is about to do and what is done.
//
// records-writer FILE SEED: each change is a line "do N WHAT", and "done N" once it is confirmed.
import Cryptography
import Glibc
import RelayProtocol
import RelayStore

/// Writes a line at once.
func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = write(STDOUT_FILENO, bytes, bytes.count)
}

guard CommandLine.arguments.count == 3, let seed = UInt64(CommandLine.arguments[2]) else { exit(64) }
do {
    let store = try RelayStore.open(path: CommandLine.arguments[1])
    let channel = try store.channel(named: "Yard")
    var random = SplitMix(state: seed)
    var tokens: [(number: Int64, token: InvitationToken)] = []
    var enrolled = try store.members(of: channel.id, limit: 100_000).map(\.id)
    say("ready")
    for step in 0... {
        // Members by an invitation of this run, or by the standing one, which a removal may replace.
        switch Int.random(in: 0..<10, using: &random) {
        case 0 where tokens.count < 50:
            let token = InvitationToken()
            say("do \(step) invite \(Base64URL.encode(token.bytes))")
            let uses = Int.random(in: 1...9, using: &random)
            let number = try store.invite(to: channel.id, token: token, terms: .init(uses: uses), now: Int64(step))
            tokens.append((number, token))
            say("done \(step) \(number)")
        case 1 where !enrolled.isEmpty:
            let member = enrolled.randomElement(using: &random)!
            say("do \(step) revoke \(member)")
            _ = try store.revoke(member, from: channel.id, now: Int64(step))
            say("done \(step)")
        case 2 where !tokens.isEmpty:
            let (number, _) = tokens.remove(at: Int.random(in: 0..<tokens.count, using: &random))
            say("do \(step) withdraw \(number)")
            try? store.withdraw(number, of: channel.id, now: Int64(step))
            say("done \(step)")
        case 3 where !enrolled.isEmpty:
            let member = enrolled.randomElement(using: &random)!
            say("do \(step) readmit \(member)")
            _ = try store.readmit(member, to: channel.id, priority: UInt8(step & 0xFF))
            say("done \(step)")
        case 4 where step % 5 == 0:
            let name = "Channel \(UInt32.random(in: 0...UInt32.max, using: &random))"
            say("do \(step) channel \(name)")
            try store.addChannel(DisplayName(name)!, now: Int64(step))
            say("done \(step)")
        default:
            let standing = try store.standingToken(of: channel.id)
            guard let token = tokens.randomElement(using: &random)?.token ?? standing else { continue }
            let member = MemberID(bytes: (0..<16).map { _ in UInt8.random(in: 0...255, using: &random) })!
            say("do \(step) enrol \(member)")
            let outcome = try store.enrol(
                member, named: DisplayName("M")!, with: token, in: channel.id, now: Int64(step))
            if case .member = outcome {
                enrolled.append(member)
                say("done \(step) in")
            } else {
                say("done \(step) out")
            }
        }
    }
} catch {
    say("failed \(error)")
    exit(1)
}

/// A small generator with a seed (Steele, Lea, Flood 2014).
struct SplitMix: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ z >> 30) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
        return z ^ z >> 31
    }
}
