// What the bytes or keys of an input mean: one of five rules, each with its controls.

/// What the values of an input mean.
public enum DecodeRule: Hashable, Sendable {
    /// The byte that tells the kind of a message, where a characteristic has several kinds of one length.
    public struct Frame: Hashable, Sendable {
        /// The position of the byte.
        public var byte: Int
        /// The byte in messages that tell this input's controls.
        public var own: UInt8
        /// The byte in messages that tell something else, and change nothing. Any other byte is unknown: it releases what is held.
        public var others: [UInt8]

        package init(byte: Int, own: UInt8, others: [UInt8]) {
            (self.byte, self.own, self.others) = (byte, own, others)
        }
    }

    /// Bytes that are one thing while pressed and another when released.
    public struct Values: Hashable, Sendable {
        /// The position of the first byte that counts.
        public var byte: Int
        /// The length of the whole value in bytes.
        public var size: Int
        /// Each control with its bytes for pressed and released.
        public var controls: [ValueControl]
        /// First bytes that tell of keys which are no controls, and change nothing.
        public var ignored: [UInt8] = []
        /// Which messages count; nil: all of this length.
        public var frame: Frame?

        package init(byte: Int, size: Int, controls: [ValueControl], ignored: [UInt8] = [], frame: Frame? = nil) {
            (self.byte, self.size, self.controls, self.ignored, self.frame) = (byte, size, controls, ignored, frame)
        }
    }

    /// A control in a value of codes.
    public struct ValueControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// The bytes, from the rule's position on, while it is pressed.
        public var pressed: [UInt8]
        /// The bytes when it is not; nil: it tells presses only.
        public var released: [UInt8]?

        /// A control that tells its presses, and perhaps its releases.
        public init(control: Control, pressed: [UInt8], released: [UInt8]?) {
            self.control = control
            self.pressed = pressed
            self.released = released
        }

        /// A control with one byte for each.
        public init(control: Control, pressed: UInt8, released: UInt8?) {
            self.init(control: control, pressed: [pressed], released: released.map { [$0] })
        }
    }

    /// A byte whose bits say which controls are held.
    public struct Bits: Hashable, Sendable {
        /// The position of the byte.
        public var byte: Int
        /// The length of the whole value in bytes.
        public var size: Int
        /// Bits that mean no button, a heartbeat say.
        public var ignored: UInt8
        /// Each control's bit.
        public var controls: [BitControl]
        /// A control is held while its bit is 0, not 1; of `ignored` the same.
        public var isActiveLow = false
        /// Which messages count; nil: all of this length.
        public var frame: Frame?

        package init(
            byte: Int, size: Int, ignored: UInt8, controls: [BitControl], isActiveLow: Bool = false,
            frame: Frame? = nil
        ) {
            (self.byte, self.size, self.ignored, self.controls) = (byte, size, ignored, controls)
            (self.isActiveLow, self.frame) = (isActiveLow, frame)
        }
    }

    /// A control in a byte of bits.
    public struct BitControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// Its bit, one of 0x01 … 0x80.
        public var bit: UInt8

        package init(control: Control, bit: UInt8) { (self.control, self.bit) = (control, bit) }
    }

    /// A byte that is zero when the control is released.
    public struct NonZero: Hashable, Sendable {
        /// The position of the byte.
        public var byte: Int
        /// The length of the whole value in bytes.
        public var size: Int
        /// Which control.
        public var control: Control
        /// Which messages count; nil: all of this length.
        public var frame: Frame?

        package init(byte: Int, size: Int, control: Control, frame: Frame? = nil) {
            (self.byte, self.size, self.control, self.frame) = (byte, size, control, frame)
        }
    }

    /// Words without separators, possibly glued together or split between messages.
    public struct Text: Hashable, Sendable {
        /// Each control with its words; letters match in either case. No word begins another.
        public var controls: [TextControl]
        /// The word that one byte of battery level follows.
        public var batteryPrefix: String?
        /// Words that tell of something else, and change nothing; then all other text ends what is held. nil: only text that begins as
        /// a control's words do ends it.
        public var ignored: [String]?

        package init(controls: [TextControl], batteryPrefix: String? = nil, ignored: [String]? = nil) {
            (self.controls, self.batteryPrefix, self.ignored) = (controls, batteryPrefix, ignored)
        }
    }

    /// A control in a text.
    public struct TextControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// The words that say pressed, any of them.
        public var pressed: [String]
        /// The words that say released, any of them; controls may share them. Empty: it tells presses only.
        public var released: [String]

        package init(control: Control, pressed: [String], released: [String]) {
            (self.control, self.pressed, self.released) = (control, pressed, released)
        }
    }

    /// Keys of an input device.
    public struct Keys: Hashable, Sendable {
        /// Each control with its keys.
        public var controls: [KeyControl]

        package init(controls: [KeyControl]) { self.controls = controls }
    }

    /// A control on an input device.
    public struct KeyControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// KEY_* and BTN_* of <linux/input-event-codes.h>; it is down while any of them is.
        public var codes: [UInt16]

        package init(control: Control, codes: [UInt16]) { (self.control, self.codes) = (control, codes) }
    }

    /// One value per button.
    case value(Values)
    /// A mask of the buttons held.
    case bits(Bits)
    /// Anything but zero is held.
    case nonzero(NonZero)
    /// ASCII words.
    case text(Text)
    /// Key codes of the kernel.
    case keys(Keys)

    /// The controls this rule can report, in the order of the file.
    public var controls: [Control] {
        switch self {
        case .value(let rule): rule.controls.map(\.control)
        case .bits(let rule): rule.controls.map(\.control)
        case .nonzero(let rule): [rule.control]
        case .text(let rule): rule.controls.map(\.control)
        case .keys(let rule): rule.controls.map(\.control)
        }
    }

    /// Which byte of a value is read, how long values are, and which of them count; nil for words and keys.
    package var place: (byte: Int, size: Int, frame: Frame?)? {
        switch self {
        case .value(let rule): (rule.byte, rule.size, rule.frame)
        case .bits(let rule): (rule.byte, rule.size, rule.frame)
        case .nonzero(let rule): (rule.byte, rule.size, rule.frame)
        case .text, .keys: nil
        }
    }

    /// The controls that tell presses only: each is a press and at once its release.
    public var clicks: Set<Control> {
        switch self {
        case .value(let rule): Set(rule.controls.filter { $0.released == nil }.map(\.control))
        case .text(let rule): Set(rule.controls.filter(\.released.isEmpty).map(\.control))
        case .bits, .nonzero, .keys: []
        }
    }
}
