// The rings between the owner of a speaker and its thread: packets and commands in, events out, statistics.
import MonotonicTime
import Synchronization
import Vocabulary

/// What the owner puts into the playback ring. A packet's payload is the slot's.
enum PlaybackCommand: BitwiseCopyable {
    case packet(voice: UInt8, sequence: UInt16, timestamp: UInt32, marker: Bool, receivedAt: Int64, isRepaired: Bool)
    case end(voice: UInt8, lastSequence: UInt16)
    case flush
    case flushVoice(UInt8)
    case play(Tone)
    case prompt(UnsafePointer<Float>, count: Int, number: UInt32)
    case stopPrompt
    case prepare
}

/// One slot of the ring of events.
struct PlaybackSlot: BitwiseCopyable {
    enum Kind: UInt8, BitwiseCopyable {
        case prepared, began, ended, toneBegan, toneEnded, promptEnded, lost, resumed, failed
    }

    var kind: Kind
    var voice: UInt8 = 0
    var tone = Tone.microphoneOn
    var end = PlaybackEnd.complete.rawValue
    var fault = AudioFault(.open, 0)
    /// The burst, or the number of the prompt.
    var burst: UInt32 = 0
    var time: Int64 = 0
    var span: Int64 = 0
    var receivedAt: Int64 = 0
    var counts = PlaybackStatistics()

    /// The slot as the owner sees it; nil for what is only logged. Allocates: for the owner's thread.
    func event(device: AudioDevice) -> PlaybackEvent? {
        let time = Instant(nanoseconds: time)
        return switch kind {
        case .prepared: .prepared(took: .nanoseconds(span))
        case .began:
            .began(
                voice: Int(voice), burst: burst, firstSampleAt: time, delay: .nanoseconds(span),
                receivedAt: Instant(nanoseconds: receivedAt))
        case .ended:
            .ended(
                voice: Int(voice), burst: burst, PlaybackEnd(rawValue: end) ?? .deviceFailed, counts, lastSampleAt: time
            )
        case .toneBegan: .toneBegan(tone, firstSampleAt: time)
        case .toneEnded: .toneEnded(tone, lastSampleAt: time)
        case .promptEnded: .promptEnded(number: burst)
        case .lost: .lost(AudioError(fault, device: device))
        case .resumed: nil
        case .failed: .failed(AudioError(fault, device: device))
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
    private static let eventsMax = 64
    /// One that fades out, and the next one; with room for those whose end is not told yet.
    private static let promptsMax = 4

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
        let command = PlaybackCommand.packet(
            voice: voice, sequence: packet.sequence, timestamp: packet.timestamp, marker: packet.marker,
            receivedAt: packet.receivedAt.nanoseconds, isRepaired: packet.isRepaired)
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
        if !events.push(slot) { refused.add(1, ordering: .relaxed) }
        eventReady.signal()
    }

    func publish(_ counts: PlaybackStatistics) { published.store(counts) }
}
