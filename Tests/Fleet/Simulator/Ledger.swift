// I5: which samples were recorded, and which of them each listener was given to play.
import MonotonicTime
import Vocabulary

@testable import Audio

/// One burst of one pttd.
struct BurstKey: Hashable {
    let device: UInt8
    let life: UInt8
    let burst: UInt32

    init(_ speech: Speech) { (device, life, burst) = (speech.device, speech.life, speech.burst) }
    init(device: Int, life: Int, burst: UInt32) {
        (self.device, self.life, self.burst) = (UInt8(device), UInt8(truncatingIfNeeded: life), burst)
    }
}

/// What one end has heard of one burst.
struct Hearing {
    var samples = 0
    var positions: Set<UInt32> = []
    /// The sequence number that the first frame of the burst has, by each packet; another one over each host of a channel nearby.
    var origin: UInt16?
    /// Behind what was heard over the hosts before the present one.
    var from: UInt32 = 0
    /// Behind all that was heard.
    var end: UInt32 = 0
}

/// What one pttd has said and heard.
final class Ledger {
    private unowned let process: Process
    /// Samples that were handed out as frames, by burst.
    private(set) var said: [UInt32: Int] = [:]
    /// What was heard since the channel was joined.
    private(set) var hearings: [BurstKey: Hearing] = [:]

    init(process: Process) { self.process = process }

    private func fail(_ text: String) { process.world.fail("I5", "\(process.name): \(text)") }

    /// A frame of own speech left the microphone.
    func framed(_ speech: Speech) {
        let end = said[speech.burst, default: 0]
        if Int(speech.position) != end { fail("frame at \(speech.position) of burst \(speech.burst) follows \(end)") }
        said[speech.burst] = end + Int(speech.count)
    }

    /// A packet goes to the speaker.
    func heard(_ packet: ReceivedFrame) {
        guard let speech = Speech(packet.payload) else { return fail("something is heard that nobody said") }
        if Int(speech.device) == process.device.number, Int(speech.life) == process.life {
            return fail("hears itself")
        }
        let key = BurstKey(speech)
        let origin = packet.sequence &- UInt16(truncatingIfNeeded: Int(speech.position) / Speech.frameSamples)
        var hearing = hearings[key] ?? Hearing()
        if let before = hearing.origin, before != origin {
            // Over another host a burst goes on behind what was heard of it.
            if !process.device.fleet.resumesBursts || speech.position < hearing.end {
                fail("burst \(key.burst) of device \(key.device) is out of order at \(speech.position)")
            }
            hearing.from = hearing.end
        }
        if speech.position < hearing.from {
            fail("burst \(key.burst) of device \(key.device) goes back to \(speech.position)")
        }
        hearing.origin = origin
        hearing.end = max(hearing.end, speech.position + UInt32(speech.count))
        hearings[key] = hearing
        if hearings[key]?.positions.insert(speech.position).inserted == false {
            fail("sample \(speech.position) of burst \(key.burst) of device \(key.device) is heard twice")
        }
        hearings[key]?.samples += Int(speech.count)
    }

    /// Another channel is joined: what is heard there may have been heard before.
    func joined() { hearings = [:] }

    /// Something was not heard because a press cut it off.
    func dropped() {}
}
