"""Twenty ways of writing: different documents all stay, and copies are found, in each of them alike."""

import json
import random
import unicodedata
from collections import Counter

import pytest

from test_corpus import rows, section
from weft.corpus.build import build_corpus

# A few dozen real words each. Code is made of lines.
VOCABULARY = {
    "hindi": (
        "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता समानता प्राप्त है उन्हें बुद्धि "
        "अन्तरात्मा की देन दिन दान दीन दूना पानी घर किताब लड़का लड़की स्कूल बाज़ार नदी पहाड़ सूरज चाँद हवा "
        "मिट्टी आग फूल पेड़ "
    ),
    "bengali": (
        "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে তাঁদের বিবেক বুদ্ধি আছে দিন দান "
        "দেশ নদী জল ঘর বই ছেলে মেয়ে স্কুল বাজার পাহাড় সূর্য চাঁদ বাতাস মাটি আগুন ফুল গাছ পাখি মাছ ভাত "
    ),
    "tamil": (
        "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர் அவர்கள் மதிப்பிலும் உரிமைகளிலும் சமமானவர்கள் "
        "வீடு புத்தகம் பையன் பெண் பள்ளிக்கூடத்திலிருந்து சந்தை ஆறு மலை சூரியன் நிலா காற்று மண் தீ பூ மரம் "
        "பறவை மீன் சோறு தண்ணீர் வந்துகொண்டிருக்கிறார்கள் "
    ),
    "thai": (
        "มนุษย์ ทั้งหลาย เกิด มา มี อิสระ และ เสมอภาค กัน ใน ศักดิ์ศรี และ สิทธิ บ้าน หนังสือ เด็กชาย "
        "ผู้หญิง โรงเรียน ตลาด แม่น้ำ ภูเขา พระอาทิตย์ ดวงจันทร์ ลม ดิน ไฟ ดอกไม้ ต้นไม้ นก ปลา ข้าว น้ำ "
    ),
    "burmese": (
        "လူ တိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် မွေးဖွားလာ သူများ ဖြစ်သည် အိမ် စာအုပ် ကောင်လေး "
        "မိန်းကလေး ကျောင်း ဈေး မြစ် တောင် နေ လ လေ မြေကြီး မီး ပန်း သစ်ပင် ငှက် ငါး ထမင်း ရေ "
    ),
    "khmer": (
        "មនុស្ស ទាំងអស់ កើតមក មាន សេរីភាព និង សមភាព ក្នុង ផ្នែក សេចក្ដីថ្លៃថ្នូរ ផ្ទះ សៀវភៅ ក្មេងប្រុស ស្រី "
        "សាលារៀន ផ្សារ ទន្លេ ភ្នំ ព្រះអាទិត្យ ព្រះចន្ទ ខ្យល់ ដី ភ្លើង ផ្កា ដើមឈើ បក្សី ត្រី បាយ ទឹក "
    ),
    "arabic": (
        "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم بعضا "
        "بروح الإخاء بيت كتاب ولد بنت مدرسة سوق نهر جبل شمس قمر ريح تراب نار زهرة شجرة طائر سمك خبز ماء "
    ),
    "vocalised arabic": (
        "يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ فِي الْكَرَامَةِ وَالْحُقُوقِ كَتَبَ كُتِبَ كُتُبٌ "
        "عَلِمَ عُلِمَ عَلَّمَ عِلْمٌ عَلَمٌ بَيْتٌ وَلَدٌ بِنْتٌ مَدْرَسَةٌ سُوقٌ نَهْرٌ جَبَلٌ شَمْسٌ "
        "قَمَرٌ رِيحٌ نَارٌ زَهْرَةٌ شَجَرَةٌ "
    ),
    "pointed hebrew": (
        "כָּל בְּנֵי הָאָדָם נוֹלְדוּ בְּנֵי חוֹרִין וְשָׁוִים בְּעֶרְכָּם וּבִזְכֻיּוֹתֵיהֶם סֵפֶר סָפַר "
        "סֹפֵר סִפֵּר בַּיִת יֶלֶד יַלְדָּה שׁוּק נָהָר הַר שֶׁמֶשׁ יָרֵחַ רוּחַ אֲדָמָה אֵשׁ פֶּרַח עֵץ "
        "צִפּוֹר דָּג לֶחֶם מַיִם "
    ),
    "korean jamo": (
        "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다 집 책 소년 소녀 학교 시장 강 산 "
        "해 달 바람 흙 불 꽃 나무 새 물고기 밥 물 "
    ),
    "decomposed vietnamese": (
        "tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm quyền nhà sách cậu bé cô gái "
        "trường chợ sông núi mặt trời trăng gió đất lửa hoa cây chim cá cơm nước ma má mà mả mã mạ "
    ),
    "yoruba": (
        "gbogbo ènìyàn ni a bí ní òmìnira iyì àti ẹ̀tọ́ wọn sì dọ́gba ọ̀rọ̀ ilé ìwé ọmọkùnrin ọmọbìnrin "
        "ilé-ìwé ọjà odò òkè oòrùn òṣùpá afẹ́fẹ́ ilẹ̀ iná òdòdó igi ẹyẹ ẹja oúnjẹ omi ọkọ ọkọ̀ ọ̀kọ̀ "
    ),
    "amharic": (
        "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው ቤት መጽሐፍ ወንድ ሴት ትምህርት ገበያ ወንዝ ተራራ ፀሐይ ጨረቃ ነፋስ አፈር እሳት "
        "አበባ ዛፍ ወፍ ዓሣ እንጀራ ውሃ "
    ),
    "georgian": (
        "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა უფლებებით სახლი წიგნი ბიჭი გოგო "
        "სკოლა ბაზარი მდინარე მთა მზე მთვარე ქარი მიწა ცეცხლი ყვავილი ხე ჩიტი თევზი პური წყალი "
    ),
    "polytonic greek": (
        "ὅλοι οἱ ἄνθρωποι γεννιοῦνται ἐλεύθεροι καὶ ἴσοι στὴν ἀξιοπρέπεια τῷ λόγῳ τῇ ἀρχῇ οἶκος βιβλίον παῖς "
        "κόρη σχολή ἀγορά ποταμός ὄρος ἥλιος σελήνη ἄνεμος γῆ πῦρ ἄνθος δένδρον ὄρνις ἰχθύς ἄρτος ὕδωρ "
    ),
    "cyrillic": (
        "все люди рождаются свободными и равными в своём достоинстве правах они наделены разумом на дом "
        "книга мальчик девочка школа рынок река гора солнце луна ветер земля огонь цветок дерево птица рыба "
        "хлеб вода что это не "
    ),
    "chinese": (
        "人人 生而 自由 在 尊严 和 权利 上 一律 平等 他们 赋有 理性 的 良心 房子 书本 男孩 女孩 学校 市场 "
        "河流 高山 太阳 月亮 微风 泥土 火焰 花朵 树木 是 了 小鸟 米饭 不 有 "
    ),
    "japanese": (
        "すべて の 人間 は 生まれ ながら に して 自由 で あり 尊厳 と 権利 について 平等 である 家 本 少年 "
        "少女 学校 市場 川 山 太陽 月 風 土 火 花 木 鳥 魚 ご飯 水 データ "
    ),
    "emoji": (
        "the party was great and we all laughed so much with that cake to be honest you should have come my "
        "sister danced until midnight then sang 🎉 ❤️ 👍🏽 👩‍👩‍👧 "
    ),
    "formulas": (
        "for all numbers that we have let each of them be such with the sum and limit hence a<b a>b x²+y²=z² "
        "x²−y²=z² f(x)=2x f(x)=3x a∈A a∉A primes follows proof from lemma two odd even root "
    ),
    "code": "",
}
UNSPACED = ("thai", "burmese", "khmer", "chinese", "japanese")
DOCUMENTS, COPIES = 50, 5


def documents(script):
    """Different ones, of sentences that differ."""
    chance = random.Random(script)
    parts = VOCABULARY[script].split()
    joint, end = ("", "。" if script in ("chinese", "japanese") else " ") if script in UNSPACED else (" ", ". ")
    form = "NFD" if "jamo" in script or "decomposed" in script else "NFC"
    made = []
    for _ in range(DOCUMENTS):
        if script == "code":
            made.append("\n".join(line_of_code(chance) for _ in range(25)))
            continue
        sentences = [joint.join(chance.choices(parts, k=10)) + end for _ in range(9)]
        made.append(unicodedata.normalize(form, "".join(sentences)))
    return made


def line_of_code(chance):
    nouns = ["total", "count", "lines", "path", "size", "index"]
    a, b, name = (f"{chance.choice(nouns)}_{chance.choice('abcdefgh')}" for _ in range(3))
    forms = ["def {name}({a}, {b}):", "return {name}({a}, {b}[{n}])", "if {a}<{n}: raise {b}", "{a}({b}+{n}, {name})"]
    form = chance.choice([*forms, "# {a} and {b} have to be the same {name}, as with {n}"])
    return form.format(a=a, b=b, name=name, n=chance.randrange(1000))


def copied(text):
    """In other case and spacing, where there is any."""
    return "  " + text.upper().replace(" ", " \u3000").replace("\n", "\n ") + "\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    place = tmp_path_factory.mktemp("scripts")
    for script in VOCABULARY:
        texts = documents(script)
        assert len(set(texts)) == DOCUMENTS
        lines = [json.dumps({"text": text}) for text in texts + list(map(copied, texts[:COPIES]))]
        (place / f"{script}.jsonl").write_text("\n".join(lines), "utf-8")
    sources = [{"path": f"{script}.jsonl", "name": script.replace(" ", "-")} for script in VOCABULARY]
    build_corpus(section(*sources), place, place / "corpus", workers=1)
    return place / "corpus"


def test_different_documents_of_every_script_stay_and_copies_go(built):
    kept = Counter(row["source"] for part in ("train", "validation", "test") for row in rows(built, part))
    dropped = {(row["source"], row["number"]): row["reason"] for row in rows(built, "dropped")}
    assert kept == {script.replace(" ", "-"): DOCUMENTS for script in VOCABULARY}, dropped
    assert Counter(dropped.values()) == {"exact duplicate": COPIES * len(VOCABULARY)}
    assert len(VOCABULARY) >= 20


def test_short_texts_that_differ_in_a_sign_or_a_vowel_stay(tmp_path):
    texts = [
        "a < b",
        "a > b",
        "2+2",
        "2-2",
        "C++",
        "C#",
        "दिन",
        "दान",
        "दीन",
        "दूना",
        "🙂",
        "🙃",
        "x²",
        "x2",
        "مَن",
        "مِن",
    ]
    copies = ["A <  b", "c++", " दिन "]
    (tmp_path / "short.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts + copies))
    build_corpus(section("short.jsonl", filter=None), tmp_path, tmp_path / "corpus", workers=1)
    kept = [row["text"] for part in ("train", "validation", "test") for row in rows(tmp_path / "corpus", part)]
    assert sorted(kept) == sorted(texts)
    assert Counter(row["reason"] for row in rows(tmp_path / "corpus", "dropped")) == {"exact duplicate": len(copies)}
