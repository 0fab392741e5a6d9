// The rings between the owner of a speaker and its thread: packets and commands in, events out, statistics.
import MonotonicTime
import Synchronization
import Vocabulary

/// A received frame but for its payload.
struct PacketHeader: BitwiseCopyable {
    var sequence: UInt16
    var timestamp: UInt32
    var marker: Bool
    var receivedAt: Instant
    var isRepaired: Bool

    init(_ frame: ReceivedFrame) {
        (sequence, timestamp, marker) = (frame.sequence, frame.timestamp, frame.marker)
        (receivedAt, isRepaired) = (frame.receivedAt, frame.isRepaired)
    }
}

/// What the owner puts into the playback ring. A packet's payload is the slot's.
enum PlaybackCommand: BitwiseCopyable {
    case packet(voice: UInt8, PacketHeader)
    case end(voice: UInt8, lastSequence: UInt16)
    case flush
    case flushVoice(UInt8)
    case play(Tone)
    case prompt(UnsafePointer<Float>, count: Int, number: UInt32)
    case stopPrompt
    case prepare
}

/// One slot of the ring of events: a `PlaybackEvent` without what has to be allocated.
enum PlaybackSlot: BitwiseCopyable {
    case prepared(took: Duration)
    case began(voice: UInt8, burst: UInt32, firstSampleAt: Instant, delay: Duration, receivedAt: Instant)
    case ended(voice: UInt8, burst: UInt32, PlaybackEnd, PlaybackStatistics, lastSampleAt: Instant)
    case toneBegan(Tone, firstSampleAt: Instant)
    case toneEnded(Tone, lastSampleAt: Instant)
    case toneDropped(Tone)
    case promptEnded(number: UInt32)
    case lost(AudioFault)
    case resumed(gap: Duration)
    case failed(AudioFault)

    /// The slot as the owner sees it; nil for what is only logged. Allocates: for the owner's thread.
    func event(device: AudioDevice) -> PlaybackEvent? {
        switch self {
        case .prepared(let took): .prepared(took: took)
        case .began(let voice, let burst, let first, let delay, let receivedAt):
            .began(voice: Int(voice), burst: burst, firstSampleAt: first, delay: delay, receivedAt: receivedAt)
        case .ended(let voice, let burst, let reason, let counts, let last):
            .ended(voice: Int(voice), burst: burst, reason, counts, lastSampleAt: last)
        case .toneBegan(let tone, let first): .toneBegan(tone, firstSampleAt: first)
        case .toneEnded(let tone, let last): .toneEnded(tone, lastSampleAt: last)
        case .toneDropped(let tone): .toneDropped(tone)
        case .promptEnded(let number): .promptEnded(number: number)
        case .lost(let fault): .lost(AudioError(fault, device: device))
        case .resumed: nil
        case .failed(let fault): .failed(AudioError(fault, device: device))
        }
    }
}

/// Two rings, two descriptors and the counts. Nothing in it blocks, allocates or locks.
final class PlaybackRings: Sendable {
    /// Packets and commands that wait for the thread: it takes them with every block, and later only while it opens a
    /// device. As many packets as a repaired gap of 2 s and held speech of 1 s bring at once, twice: rarely more than two talk.
    static let commandsMax = 640
    /// Slots that packets leave free for commands.
    private static let commandsReserve = 8
    /// One that fades out, and the next one; with room for those whose end is not told yet.
    private static let promptsMax = 4
    /// Events that wait for the owner. The last slots are for the ends of prompts: a prompt whose end is lost keeps its place for ever.
    private static let eventsMax = 64 + promptsMax

    let eventReady: WakeDescriptor
    private let wake: WakeDescriptor
    private let commands = SPSCRing<PlaybackCommand>(capacity: commandsMax, payloadCapacity: opusPayloadMax)
    private let events = SPSCRing<PlaybackSlot>(capacity: eventsMax, payloadCapacity: 0)
    private let shutdown = Atomic<Bool>(false)
    private let running = Atomic<Bool>(false)
    /// Packets and commands that found no room, and events that found none.
    private let refused = Atomic<Int>(0)
    private let published = PublishedStatistics()
    /// The prompts whose samples the thread may read still. Only the owner touches the dictionary.
    private let prompts = Mutex<[UInt32: PromptSound]>([:])

    init() throws(AudioFault) {
        eventReady = try WakeDescriptor()
        wake = try WakeDescriptor()
    }

    /// Whether the device runs. From any thread; set by the playback thread.
    var isRunning: Bool {
        get { running.load(ordering: .acquiring) }
        set { running.store(newValue, ordering: .releasing) }
    }

    var statistics: PlaybackStatistics {
        var counts = published.load()
        counts.dropped += refused.load(ordering: .relaxed)
        return counts
    }

    var packetsHeld: Int { published.packetsHeld }

    // MARK: The owner's side

    func enqueue(_ packet: ReceivedFrame, voice: UInt8) -> Bool {
        let command = PlaybackCommand.packet(voice: voice, PacketHeader(packet))
        let taken = packet.payload.withUnsafeBytes { commands.push(command, $0, reserve: Self.commandsReserve) }
        if !taken { refused.add(1, ordering: .relaxed) }
        wake.signal()
        return taken
    }

    func command(_ command: PlaybackCommand) {
        if !commands.push(command) { refused.add(1, ordering: .relaxed) }
        wake.signal()
    }

    /// Hands over a prompt. False: too many have not ended yet.
    func play(_ prompt: PromptSound, number: UInt32) -> Bool {
        let isKept = prompts.withLock { prompts in
            guard prompts.count < Self.promptsMax, prompts[number] == nil else { return false }
            prompts[number] = prompt
            return true
        }
        guard isKept else { return false }
        let isTaken = commands.push(.prompt(prompt.samples, count: prompt.count, number: number))
        if !isTaken { ended(prompt: number) }
        wake.signal()
        return isTaken
    }

    /// The thread is done with a prompt.
    func ended(prompt number: UInt32) { prompts.withLock { _ = $0.removeValue(forKey: number) } }

    func shutDown() {
        shutdown.store(true, ordering: .releasing)
        wake.signal()
    }

    func next() -> PlaybackSlot? { events.pop { slot, _ in slot } }

    // MARK: The thread's side

    var isShutDown: Bool { shutdown.load(ordering: .acquiring) }

    /// Gives every command that waits, with its payload, to `body`.
    func takeCommands(_ body: (PlaybackCommand, UnsafeRawBufferPointer) -> Void) {
        while commands.pop(body) != nil {}
    }

    /// Sleeps until the owner wants something, or until `deadline`. Returns whether it is the deadline that has come.
    func wait(until deadline: Instant?) -> Bool { wake.wait(until: deadline) }

    func put(_ slot: PlaybackSlot) {
        let reserve = if case .promptEnded = slot { 0 } else { Self.promptsMax }
        if !events.push(slot, reserve: reserve) { refused.add(1, ordering: .relaxed) }
        eventReady.signal()
    }

    func publish(_ counts: PlaybackStatistics) { published.store(counts) }
}
